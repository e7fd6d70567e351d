// SPDX-License-Identifier: Apache-2.0
// What the shim headers may ask of the runtime. A kernel's own memory accesses do not
// pass through here: the compiler reports them (see hooks.cpp).
#pragma once
#include <stddef.h>
#include <stdint.h>

// Values of the thread attributes, each kind in alphabetical order of the names.
struct EmuIds {
  uint32_t vectors[9][3];
  uint32_t scalars[11];
};

extern "C" {

// The kernel's translation unit defines this: one call is the life of one lane.
void emu_kernel(void* const* buffers, const EmuIds* ids);

enum { EMU_SITE_LIMIT = 64 };  // bytes one lane may hand to an exchange

// Storage shared by the threadgroup, one for each declaration: the same answer for
// every lane and call. It is aligned for every type.
void* emu_threadgroup_storage(const char* name, int line, size_t size);

// Wait until every lane of the simdgroup stands at `site` with the same `operation`,
// then return the values all of them brought: lane i's at i * EMU_SITE_LIMIT.
const void* emu_exchange(const char* operation, int site, const void* value,
                         size_t size);

// flags: 1 orders device memory, 2 orders threadgroup memory.
void emu_threadgroup_barrier(int flags, int site);
void emu_simdgroup_barrier(int flags, int site);

uint32_t emu_lane(void);              // index in the simdgroup
uint32_t emu_lanes(void);             // bit i: lane i of this simdgroup exists
int emu_reduction_order(void);        // 0 butterfly, 1 ascending, 2 descending
void emu_invalid_lane(const char* operation, int site, uint32_t lane);

// The whole of an atomic operation's contact with memory. `changes` tells a write.
void emu_atomic(const void* address, size_t size, int changes);
void emu_peek(const void* address, void* value, size_t size);
void emu_poke(void* address, const void* value, size_t size);
}
