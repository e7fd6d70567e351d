// SPDX-License-Identifier: Apache-2.0
// Bounds, permission, initialisation and races, byte by byte.
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>

#include "state.h"

namespace emu {
namespace {

// Objects lie in equal slots of one reserved range, so that an address finds its slot
// by division and a stray index meets a gap of at least kGap bytes.
constexpr size_t kGap = size_t(1) << 20;
constexpr size_t kSlot = size_t(1) << 26;
constexpr size_t kSlots = 96;
constexpr size_t kRange = kSlot * kSlots;

uint8_t* range = nullptr;
std::vector<Object*> placed;

uint8_t* reserve(size_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<uint8_t*>(memory);
}

const char* noun(const Object& object) {
  if (object.space == Space::threadgroup) return "threadgroup memory";
  if (object.role == Role::table) return "table";
  return object.role == Role::input ? "input" : "output";
}

std::string bytes(size_t size) {
  return std::to_string(size) + (size == 1 ? " byte" : " bytes");
}

size_t distance(const Object& object, const uint8_t* address) {
  return address < object.data ? object.data - address : address - object.data;
}

const Object* nearest(const uint8_t* address) {
  const Object* best = nullptr;
  for (const Object* object : placed)
    if (best == nullptr || distance(*object, address) < distance(*best, address))
      best = object;
  return best;
}

[[noreturn]] void out_of_bounds(const uint8_t* address, size_t size, bool write,
                                const void* pc) {
  std::string text = (write ? "writes " : "reads ") + bytes(size);
  const Object* object = nearest(address);
  if (object == nullptr || distance(*object, address) > kGap)
    text += " far from every buffer";
  else
    text += " at byte " + std::to_string(address - object->data) + " of " +
            noun(*object) + " '" + object->name + "', which has " +
            bytes(object->size);
  const Access now = access_now(Space::device, false, pc);
  report("out-of-bounds", position(now.group, now.lane) + " " + text, 0, pc);
  abandon();
}

bool conflict(const Access& before, const Access& now) {
  if (before.group < 0 || (before.atomic && now.atomic)) return false;
  if (before.group != now.group) return true;
  if (before.lane == now.lane || before.group_epoch != now.group_epoch) return false;
  return simdgroup_of(before.lane) != simdgroup_of(now.lane) ||
         before.simd_epoch == now.simd_epoch;
}

void report_race(const Object& object, size_t offset, const Access& before,
                 bool wrote, const Access& now, bool writes) {
  std::string text = std::string(noun(object)) + " '" + object.name + "' byte " +
                     std::to_string(offset) + ": " + position(now.group, now.lane) +
                     (writes ? " writes" : " reads") + " what " +
                     position(before.group, before.lane) +
                     (wrote ? " wrote" : " read");
  if (before.group != now.group)
    text += ", and nothing orders two threadgroups";
  else if (simdgroup_of(before.lane) == simdgroup_of(now.lane))
    text += " without a barrier (relies on lock-step in one simdgroup)";
  else
    text += " without a barrier for this memory";
  report("race", text, 0, now.pc, before.pc);
}

void note_reader(Cell& cell, const Access& now) {
  const Access& last = cell.read;
  if (last.group >= 0 && (last.group != now.group || last.lane != now.lane)) {
    cell.read_other_lane = last;
    if (last.group != now.group ||
        simdgroup_of(last.lane) != simdgroup_of(now.lane))
      cell.read_other_simd = last;
  }
  cell.read = now;
}

void check_read(Object& object, size_t offset, const Access& now) {
  Cell& cell = object.cells[offset];
  if (!cell.initialised) {
    const bool gap = object.role != Role::output && object.space == Space::device;
    report("uninitialised-read",
           position(now.group, now.lane) + " reads byte " + std::to_string(offset) +
               " of " + noun(object) + " '" + object.name + "', " +
               (gap ? "a gap between the elements of the strided input"
                    : "which nobody has written"),
           0, now.pc);
  }
  if (conflict(cell.write, now))
    report_race(object, offset, cell.write, true, now, false);
  note_reader(cell, now);
  if (cell.fetched_by != now.group) {
    cell.fetched_by = now.group;
    ++object.bytes_fetched;
  }
}

void check_write(Object& object, size_t offset, const Access& now) {
  Cell& cell = object.cells[offset];
  if (conflict(cell.write, now)) {
    report_race(object, offset, cell.write, true, now, true);
  } else {
    for (const Access* read :
         {&cell.read, &cell.read_other_lane, &cell.read_other_simd})
      if (conflict(*read, now)) {
        report_race(object, offset, *read, false, now, true);
        break;
      }
  }
  cell.write = now;
  cell.initialised = true;
}

// Constant tables of the kernel lie in this very library.
bool in_this_library(const void* address) {
  Dl_info found, mine;
  return dladdr(address, &found) != 0 &&
         dladdr(reinterpret_cast<const void*>(&touch), &mine) != 0 &&
         found.dli_fbase == mine.dli_fbase;
}

Object* owner(const uint8_t* address) {
  if (range == nullptr || address < range || address >= range + kRange) return nullptr;
  const size_t slot = static_cast<size_t>(address - range) / kSlot;
  return slot < placed.size() ? placed[slot] : nullptr;
}

}  // namespace

void place(Object& object, const void* initial, const uint8_t* known) {
  if (range == nullptr) range = reserve(kRange);
  if (range == nullptr || placed.size() >= kSlots || object.size + 2 * kGap > kSlot) {
    report("launch-limit", "'" + object.name + "' is too large for the emulator", 0,
           nullptr);
    return;
  }
  object.data = range + placed.size() * kSlot + kGap;
  placed.push_back(&object);
  object.cells.assign(object.size, Cell());
  if (initial != nullptr) memcpy(object.data, initial, object.size);
  for (size_t i = 0; i < object.size; ++i)
    object.cells[i].initialised = known == nullptr ? initial != nullptr : known[i];
}

void clear_objects() { placed.clear(); }

void clear_threadgroup_objects() {
  for (Object* object : placed)
    if (object->space == Space::threadgroup) {
      object->cells.assign(object->size, Cell());
      memset(object->data, 0xCD, object->size);
    }
}

void touch(const void* address, size_t size, bool write, bool atomic, const void* pc) {
  if (!running) return;
  const uint8_t* byte = static_cast<const uint8_t*>(address);
  if (byte >= stacks && byte < stacks + stacks_size) return;
  count_step(pc);
  Object* object = owner(byte);
  if (object == nullptr) {
    if (in_this_library(address)) return;
    out_of_bounds(byte, size, write, pc);
  }
  if (byte < object->data || byte + size > object->data + object->size)
    out_of_bounds(byte, size, write, pc);
  const Access now = access_now(object->space, atomic, pc);
  const size_t offset = static_cast<size_t>(byte - object->data);
  if (write && object->role != Role::output) {
    report("input-write",
           position(now.group, now.lane) + " writes byte " + std::to_string(offset) +
               " of " + noun(*object) + " '" + object->name + "', which is read-only",
           0, pc);
    abandon();
  }
  (write ? object->bytes_written : object->bytes_read) += size;
  cache_touch(*object, offset, size, write);
  for (size_t i = 0; i < size; ++i)
    write ? check_write(*object, offset + i, now) : check_read(*object, offset + i, now);
}

void report_unwritten(const Object& object) {
  size_t holes = 0, first = 0;
  for (size_t i = 0; i < object.size; ++i)
    if (!object.cells[i].initialised && holes++ == 0) first = i;
  if (holes != 0)
    report("unwritten-output",
           "output '" + object.name + "': " + std::to_string(holes) + " of " +
               bytes(object.size) + " were never written, the first is byte " +
               std::to_string(first),
           0, nullptr);
}

}  // namespace emu
