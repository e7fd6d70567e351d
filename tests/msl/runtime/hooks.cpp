// SPDX-License-Identifier: Apache-2.0
// The compiler is told to instrument for a thread sanitizer and an undefined-behaviour
// sanitizer; these are the functions it then calls. None of their libraries is linked.
#include "state.h"

#define CALLER __builtin_return_address(0)

namespace {

// Where every record of the undefined-behaviour sanitizer begins.
struct SourceLocation {
  const char* file;
  uint32_t line, column;
};

std::string who() {
  const emu::Access now = emu::access_now(emu::Space::device, false, nullptr);
  return emu::position(now.group, now.lane) + " ";
}

void undefined(const char* kind, const void* record, const std::string& text,
               bool fatal) {
  if (!emu::running) return;
  const SourceLocation* at = static_cast<const SourceLocation*>(record);
  emu::report(kind, who() + text, static_cast<int>(at->line), nullptr);
  if (fatal) emu::abandon();
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define ACCESS(size)                                                             \
  void __tsan_read##size(void* p) { emu::touch(p, size, false, false, CALLER); } \
  void __tsan_write##size(void* p) { emu::touch(p, size, true, false, CALLER); }
#define UNALIGNED(size)                        \
  void __tsan_unaligned_read##size(void* p) {  \
    emu::touch(p, size, false, false, CALLER); \
  }                                            \
  void __tsan_unaligned_write##size(void* p) { \
    emu::touch(p, size, true, false, CALLER);  \
  }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
UNALIGNED(2)
UNALIGNED(4)
UNALIGNED(8)
UNALIGNED(16)

void __tsan_read_range(void* p, size_t size) {
  emu::touch(p, size, false, false, CALLER);
}
void __tsan_write_range(void* p, size_t size) {
  emu::touch(p, size, true, false, CALLER);
}
void* __tsan_memcpy(void* to, const void* from, size_t size) {
  emu::touch(from, size, false, false, CALLER);
  emu::touch(to, size, true, false, CALLER);
  return __builtin_memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, size_t size) {
  emu::touch(from, size, false, false, CALLER);
  emu::touch(to, size, true, false, CALLER);
  return __builtin_memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, size_t size) {
  emu::touch(to, size, true, false, CALLER);
  return __builtin_memset(to, value, size);
}

void __ubsan_handle_out_of_bounds(void* record, uintptr_t index) {
  undefined("out-of-bounds", record,
            "uses index " + std::to_string(static_cast<intptr_t>(index)) +
                " of a shorter array",
            true);
}
void __ubsan_handle_type_mismatch_v1(void* record, uintptr_t address) {
  undefined("misaligned", record,
            "uses address ..." + std::to_string(address % 64) +
                " (modulo 64) for a type that needs a stricter alignment",
            false);
}
void __ubsan_handle_shift_out_of_bounds(void* record, uintptr_t, uintptr_t) {
  undefined("undefined", record, "shifts by more bits than the type has", false);
}
void __ubsan_handle_divrem_overflow(void* record, uintptr_t, uintptr_t) {
  undefined("undefined", record, "divides by zero", true);
}
}
