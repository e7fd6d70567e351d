// SPDX-License-Identifier: Apache-2.0
// Switching between fibers: a few instructions on x86-64, ucontext elsewhere.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace emu {

#if defined(__x86_64__) && defined(__linux__)

struct Fiber {
  void* stack_pointer = nullptr;
};

extern "C" void emu_swap_stacks(void** save, void* load);
asm(R"(
.pushsection .text
.hidden emu_swap_stacks
.globl emu_swap_stacks
.type emu_swap_stacks, @function
emu_swap_stacks:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.popsection
)");

inline void prepare(Fiber& fiber, uint8_t* stack, size_t size, void (*body)()) {
  // Six saved registers, the return address, and one word so that the body starts
  // with the alignment a called function expects.
  uintptr_t top = (reinterpret_cast<uintptr_t>(stack) + size) & ~uintptr_t(15);
  uintptr_t* frame = reinterpret_cast<uintptr_t*>(top) - 8;
  for (int i = 0; i < 6; ++i) frame[i] = 0;
  frame[6] = reinterpret_cast<uintptr_t>(body);
  frame[7] = 0;
  fiber.stack_pointer = frame;
}

inline void swap(Fiber& from, Fiber& to) {
  emu_swap_stacks(&from.stack_pointer, to.stack_pointer);
}

#else

}  // namespace emu
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700  // macOS hides ucontext without it
#endif
#include <ucontext.h>
namespace emu {

struct Fiber {
  ucontext_t context;
};

inline void prepare(Fiber& fiber, uint8_t* stack, size_t size, void (*body)()) {
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stack;
  fiber.context.uc_stack.ss_size = size;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, body, 0);
}

inline void swap(Fiber& from, Fiber& to) { swapcontext(&from.context, &to.context); }

#endif

}  // namespace emu
