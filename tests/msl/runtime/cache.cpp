// SPDX-License-Identifier: Apache-2.0
// A cache between the device's memory and all threadgroups: lines of 128 bytes, the
// least recently used one leaves first. Reading brings a line in; writing does not, and
// what was written goes to memory when its line leaves.
#include <bitset>
#include <list>
#include <unordered_map>

#include "state.h"

namespace emu {
namespace {

struct Line {
  Object* object;
  size_t first;  // byte of the object
  bool filled;   // brought in by a read
  std::bitset<kLineBytes> dirty;
};

size_t capacity = 0;
std::list<Line> lines;  // the most recently used one first
std::unordered_map<const uint8_t*, std::list<Line>::iterator> where;

void write_back(Line& line) {
  line.object->bytes_moved += line.dirty.count();
  line.dirty.reset();
}

Line& bring(Object& object, size_t first) {
  const uint8_t* key = object.data + first;
  const auto found = where.find(key);
  if (found != where.end()) {
    lines.splice(lines.begin(), lines, found->second);
    return lines.front();
  }
  if (lines.size() >= capacity) {
    write_back(lines.back());
    where.erase(lines.back().object->data + lines.back().first);
    lines.pop_back();
  }
  lines.push_front(Line{&object, first, false, {}});
  where[key] = lines.begin();
  return lines.front();
}

}  // namespace

void cache_begin(size_t line_count) {
  capacity = line_count;
  lines.clear();
  where.clear();
}

void cache_touch(Object& object, size_t offset, size_t size, bool write) {
  if (capacity == 0 || object.space != Space::device) return;
  const size_t end = offset + size;
  for (size_t first = offset - offset % kLineBytes; first < end; first += kLineBytes) {
    Line& line = bring(object, first);
    if (write) {
      for (size_t i = offset > first ? offset : first;
           i < end && i < first + kLineBytes; ++i)
        line.dirty.set(i - first);
    } else if (!line.filled) {
      // What the device itself has written last need not be read again.
      const size_t whole =
          object.size - first < kLineBytes ? object.size - first : kLineBytes;
      object.bytes_moved += whole - line.dirty.count();
      line.filled = true;
    }
  }
}

void cache_flush() {
  for (Line& line : lines) write_back(line);
  lines.clear();
  where.clear();
}

}  // namespace emu
