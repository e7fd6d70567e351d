// SPDX-License-Identifier: Apache-2.0
// What a cycle commits, by one thread: the draft prefix that stays, the target's own
// token after it, and how much of that the budget and the first stop token leave.
// Reference: splashpy/kernels/accept.py.
#include <metal_stdlib>
using namespace metal;

// decision: kept, broken, count, then DRAFTED + 1 tokens. `own` is the target's token
// at every place that is not kept.
template <int DRAFTED, int STOPS, typename Proposal, typename Broken, typename Stops>
inline void decide_at(
    Proposal proposal, Broken broken, Stops stops, device int* decision, int kept,
    int own, int budget) {
  int bad = 0;
  for (int row = 0; row <= kept; ++row)
    if (broken[row]) bad = 1;
  int count = min(kept + 1, budget);
  bool stopped = false;
  for (int i = 0; i <= DRAFTED; ++i) {
    const int token = i < kept ? int(proposal[min(i, DRAFTED - 1)]) : own;
    decision[3 + i] = token;
    for (int s = 0; s < STOPS; ++s)
      if (!stopped && i < count && token == int(stops[s])) {
        stopped = true;
        count = i + 1;
      }
  }
  decision[0] = kept;
  decision[1] = bad;
  decision[2] = count;
}

// The draft stays while it equals the target's choice.
template <int DRAFTED, int STOPS, typename Proposal, typename Choices, typename Broken,
          typename Stops>
inline void accept_greedy_at(
    Proposal proposal, Choices choices, Broken broken, Stops stops,
    device int* decision, int budget) {
  int kept = 0;
  while (kept < DRAFTED && proposal[kept] == choices[kept]) ++kept;
  decide_at<DRAFTED, STOPS>(proposal, broken, stops, decision, kept,
                            int(choices[kept]), budget);
}

template <int COUNT, typename Ids, typename Probs>
inline float chance_of(Ids ids, Probs probs, int row, int token) {
  float sum = 0.0f;
  for (int i = 0; i < COUNT; ++i)
    if (int(ids[row * COUNT + i]) == token) sum += probs[row * COUNT + i];
  return sum;
}

// A drafted token stays while uniform * q < p; the first that does not is replaced by a
// draw from max(p - q, 0), a whole draft is followed by a draw from p. Target rows hold
// KEPT tokens in order of their ids, the draft's rows COUNT candidates.
template <int DRAFTED, int STOPS, int KEPT, int COUNT, typename Proposal,
          typename Candidates, typename Q, typename Ids, typename P, typename Broken,
          typename Uniforms, typename Stops>
inline void accept_sampled_at(
    Proposal proposal, Candidates candidates, Q q, Ids ids, P p, Broken broken,
    Uniforms uniforms, Stops stops, device int* decision, float last_uniform,
    int budget) {
  int kept = 0;
  while (kept < DRAFTED) {
    const int token = int(proposal[kept]);
    const float drawn = chance_of<COUNT>(candidates, q, kept, token);
    if (!(uniforms[kept] * drawn < chance_of<KEPT>(ids, p, kept, token))) break;
    ++kept;
  }
  float weights[KEPT];
  float total = 0.0f;
  for (int i = 0; i < KEPT; ++i) {
    weights[i] = p[kept * KEPT + i];
    if (kept < DRAFTED) {
      const int token = int(ids[kept * KEPT + i]);
      weights[i] -= chance_of<COUNT>(candidates, q, kept, token);
    }
    weights[i] = weights[i] < 0.0f ? 0.0f : weights[i];  // max would lose a NaN
    total += weights[i];
  }
  // Rounding can leave nothing where p equals q, and a drafter may compute no numbers.
  if (!(total > 0.0f)) {
    total = 0.0f;
    for (int i = 0; i < KEPT; ++i) {
      weights[i] = p[kept * KEPT + i];
      total += weights[i];
    }
  }
  int own = int(ids[kept * KEPT]);
  float sum = 0.0f;
  bool found = false;
  for (int i = 0; i < KEPT; ++i) {
    sum += weights[i];
    if (!found && weights[i] > 0.0f) {
      own = int(ids[kept * KEPT + i]);
      found = sum > last_uniform * total;
    }
  }
  decide_at<DRAFTED, STOPS>(proposal, broken, stops, decision, kept, own, budget);
}
