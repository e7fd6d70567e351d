// SPDX-License-Identifier: Apache-2.0
// Tells pi of the server that `splashpy launch pi` was started for.

export default function (pi) {
  pi.registerProvider("splashpy", JSON.parse(process.env.SPLASHPY_PI_PROVIDER));
}
