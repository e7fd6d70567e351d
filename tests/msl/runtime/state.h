// SPDX-License-Identifier: Apache-2.0
// The running launch: its objects with one shadow cell per byte, its lanes, its
// findings. One launch at a time, on one operating-system thread.
#pragma once
#include <string>
#include <vector>

#include "emulator.h"

namespace emu {

enum class Space { device, threadgroup };
enum class Role { input, output, table };

// One access to one byte. Two accesses are ordered when a barrier moved the epoch of
// their memory space between them.
struct Access {
  int group = -1;  // linear threadgroup index, -1: none yet
  int lane = -1;   // linear index in the threadgroup
  uint32_t group_epoch = 0;
  uint32_t simd_epoch = 0;
  bool atomic = false;
  const void* pc = nullptr;
};

struct Cell {
  bool initialised = false;
  Access write;
  // The last reader, the last one by another lane, the last one by another simdgroup:
  // with these no conflicting reader of the current epoch can hide behind a newer one.
  Access read, read_other_lane, read_other_simd;
  int fetched_by = -1;  // last threadgroup that read the byte
};

struct Object {
  std::string name;
  int line = 0;  // of its declaration, for threadgroup memory
  Space space = Space::device;
  Role role = Role::input;
  uint8_t* data = nullptr;
  size_t size = 0;
  std::vector<Cell> cells;
  uint64_t bytes_read = 0, bytes_written = 0;  // every access
  uint64_t bytes_fetched = 0;                  // each byte once per threadgroup
  uint64_t bytes_moved = 0;                    // between memory and the cache
};

enum class State { runnable, at_simd, at_group, done };

struct Lane {
  State state = State::runnable;
  int index = 0;  // linear in the threadgroup
  const char* operation = "";
  int site = 0;
  int flags = 0;
  bool orders_memory = false;
  const void* value = nullptr;
  size_t size = 0;
  const void* slots = nullptr;
};

// C layout shared with emulator.py.
struct Finding {
  char kind[32];
  char text[352];
  int32_t line;        // of the kernel, 0 when only pc tells
  int64_t pc;          // offset in this library, -1: none
  int64_t other_pc;    // of the earlier access of a race, -1: none
};

// Launch description, C layout shared with emulator.py.
struct EmuBuffer {
  const char* name;
  void* data;
  const uint8_t* known;  // one byte per byte: nonzero = holds a value; null = all do
  uint64_t size;
  int32_t role;  // Role
  int32_t may_have_holes;
  uint64_t bytes_read, bytes_written, bytes_fetched, bytes_moved;  // filled in
};

struct EmuLaunch {
  uint32_t grid[3], threadgroup[3];
  uint32_t seed;
  int32_t reduction_order;
  uint64_t step_limit;
  uint64_t threadgroup_bytes_limit;
  uint64_t cache_lines;  // 0: nothing moves
  EmuBuffer* buffers;
  int32_t buffer_count;
  Finding* findings;  // room for kMostFindings
};

extern std::vector<Finding> findings;
extern bool running;  // a lane runs: its accesses count

Lane& current();
int simdgroup_of(int lane);
Access access_now(Space space, bool atomic, const void* pc);
std::string position(int group, int lane);  // "thread (1,0,0) of threadgroup (0,0,0)"

void report(const char* kind, const std::string& text, int line, const void* pc,
            const void* other_pc = nullptr);
[[noreturn]] void abandon();      // stop the whole launch from inside a lane
void count_step(const void* pc);  // stop a launch that does not end

// lanes.cpp: run every lane to its end; false when the launch was stopped.
bool run_grid(const EmuLaunch& request, const std::vector<void*>& buffers);

// memory.cpp
void place(Object& object, const void* initial, const uint8_t* known);
void clear_objects();
void clear_threadgroup_objects();
void touch(const void* address, size_t size, bool write, bool atomic, const void* pc);
void report_unwritten(const Object& object);

// cache.cpp
constexpr size_t kLineBytes = 128;
void cache_begin(size_t line_count);
void cache_touch(Object& object, size_t offset, size_t size, bool write);
void cache_flush();

// Stack range of the lanes.
extern uint8_t* stacks;
extern size_t stacks_size;
}  // namespace emu
