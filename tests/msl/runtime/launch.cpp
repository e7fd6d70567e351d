// SPDX-License-Identifier: Apache-2.0
// One launch: its buffers in, its lanes, its buffers and findings out.
#include <string.h>

#include "state.h"

using namespace emu;

namespace {

const EmuLaunch* launched = nullptr;
std::vector<Object*> shared;  // threadgroup memory of the kernel

void take(const EmuBuffer& from, Object& to) {
  to.name = from.name;
  to.role = static_cast<Role>(from.role);
  to.size = from.size;
  place(to, from.data, from.known);
}

void give(const Object& from, EmuBuffer& to, bool ended) {
  if (from.role == Role::output && from.data != nullptr) {
    if (ended && !to.may_have_holes) report_unwritten(from);
    memcpy(to.data, from.data, to.size);
  }
  to.bytes_read = from.bytes_read;
  to.bytes_written = from.bytes_written;
  to.bytes_fetched = from.bytes_fetched;
  to.bytes_moved = from.bytes_moved;
}

}  // namespace

extern "C" {

void* emu_threadgroup_storage(const char* name, int line, size_t size) {
  for (Object* object : shared)
    if (object->name == name && object->line == line) return object->data;
  size_t total = 0;
  for (const Object* object : shared) total += object->size;
  if (total + size > launched->threadgroup_bytes_limit) {
    report("launch-limit",
           "threadgroup memory: '" + std::string(name) + "' makes " +
               std::to_string(total + size) + " bytes, the limit is " +
               std::to_string(launched->threadgroup_bytes_limit),
           line, nullptr);
    abandon();
  }
  Object* object = new Object;
  object->name = name;
  object->line = line;
  object->space = Space::threadgroup;
  object->role = Role::output;
  object->size = size;
  place(*object, nullptr, nullptr);
  if (object->data == nullptr) abandon();
  memset(object->data, 0xCD, size);
  shared.push_back(object);
  return object->data;
}

__attribute__((visibility("default"))) int emu_run(EmuLaunch* request) {
  launched = request;
  findings.clear();
  std::vector<Object> buffers(request->buffer_count);
  std::vector<void*> addresses;
  for (int i = 0; i < request->buffer_count; ++i) {
    take(request->buffers[i], buffers[i]);
    addresses.push_back(buffers[i].data);
  }
  cache_begin(request->cache_lines);
  const bool ended = findings.empty() && run_grid(*request, addresses);
  cache_flush();
  for (int i = 0; i < request->buffer_count; ++i)
    give(buffers[i], request->buffers[i], ended);
  for (Object* object : shared) delete object;
  shared.clear();
  clear_objects();
  for (size_t i = 0; i < findings.size(); ++i) request->findings[i] = findings[i];
  return static_cast<int>(findings.size());
}

}  // extern "C"
