// SPDX-License-Identifier: Apache-2.0
// Lanes as fibers. Runnable lanes run in seeded random order until each waits or ends;
// a simdgroup goes on when all its lanes wait at the same call, a threadgroup when all
// its lanes wait at the same barrier. Threadgroups run one after another, in seeded
// random order.
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>

#include "state.h"
#include "switch.h"

namespace emu {

bool running = false;
uint8_t* stacks = nullptr;
size_t stacks_size = 0;

namespace {

constexpr int kWidth = 32;
constexpr int kMostLanes = 1024;
constexpr size_t kStack = size_t(256) << 10;

struct Simd {
  uint32_t epoch[2] = {0, 0};  // by Space
  int parity = 0;
  alignas(16) uint8_t slots[2][kWidth][EMU_SITE_LIMIT];
};

const EmuLaunch* launch = nullptr;
uint32_t extent[3];       // of this threadgroup, smaller at the grid's edge
uint32_t group_at[3];     // position of this threadgroup
uint32_t groups[3];
int group_index = 0;
uint32_t group_epoch[2];  // by Space
std::vector<Lane> lanes;
std::vector<Fiber> fibers;
std::vector<Simd> simds;
std::vector<void*> kernel_buffers;
uint64_t steps = 0;
bool stopped = false;
int running_lane = 0;
Fiber scheduler;
std::mt19937 dice;

bool reserve_stacks() {
  if (stacks != nullptr) return true;
  void* memory = mmap(nullptr, kStack * kMostLanes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    report("launch-limit", "no address space for the stacks of the lanes", 0, nullptr);
    return false;
  }
  stacks = static_cast<uint8_t*>(memory);
  stacks_size = kStack * kMostLanes;
  return true;
}

void wait(State state) {
  Lane& lane = lanes[running_lane];
  lane.state = state;
  running = false;
  swap(fibers[lane.index], scheduler);
  running = true;
}

void fill_ids(int lane, EmuIds& ids) {
  const uint32_t at[3] = {lane % extent[0], lane / extent[0] % extent[1],
                          lane / (extent[0] * extent[1])};
  const uint32_t threads = extent[0] * extent[1] * extent[2];
  const uint32_t* full = launch->threadgroup;
  const uint32_t full_threads = full[0] * full[1] * full[2];
  for (int i = 0; i < 3; ++i) {
    const uint32_t values[9] = {full[i],     0,
                                launch->grid[i], group_at[i] * full[i] + at[i],
                                at[i],       group_at[i],
                                groups[i],   launch->grid[i],
                                extent[i]};
    for (int v = 0; v < 9; ++v) ids.vectors[v][i] = values[v];
  }
  const uint32_t index = static_cast<uint32_t>(lane);
  const uint32_t scalars[11] = {(full_threads + 3) / 4,
                                (full_threads + kWidth - 1) / kWidth,
                                index / 4,
                                (threads + 3) / 4,
                                index / kWidth,
                                (threads + kWidth - 1) / kWidth,
                                kWidth,
                                index % 4,
                                index % kWidth,
                                index,
                                kWidth};
  memcpy(ids.scalars, scalars, sizeof scalars);
}

void run_lane() {
  EmuIds ids;
  fill_ids(running_lane, ids);
  running = true;
  emu_kernel(kernel_buffers.data(), &ids);
  wait(State::done);
}

int count(State state, int first, int last) {
  int n = 0;
  for (int i = first; i < last; ++i) n += lanes[i].state == state;
  return n;
}

bool same_place(const Lane& a, const Lane& b) {
  return a.site == b.site && strcmp(a.operation, b.operation) == 0;
}

void raise_epochs(uint32_t* epoch, int flags) {
  if (flags & 1) ++epoch[static_cast<int>(Space::device)];
  if (flags & 2) ++epoch[static_cast<int>(Space::threadgroup)];
}

std::string place_of(const Lane& lane) {
  return std::string(lane.operation) + " in line " + std::to_string(lane.site);
}

// Lanes [first, last) wait in `state`, or the launch is faulty.
bool may_go_on(State state, int first, int last) {
  if (count(state, first, last) != last - first) return false;
  for (int i = first + 1; i < last; ++i)
    if (!same_place(lanes[first], lanes[i])) return false;
  return true;
}

bool release_simdgroup(int simd) {
  const int first = simd * kWidth;
  const int last = std::min(first + kWidth, static_cast<int>(lanes.size()));
  if (!may_go_on(State::at_simd, first, last)) return false;
  Simd& s = simds[simd];
  s.parity ^= 1;
  for (int i = first; i < last; ++i) {
    Lane& lane = lanes[i];
    if (lane.size != 0) memcpy(s.slots[s.parity][i - first], lane.value, lane.size);
    lane.slots = s.slots[s.parity];
    lane.state = State::runnable;
  }
  if (lanes[first].orders_memory) raise_epochs(s.epoch, lanes[first].flags);
  return true;
}

bool release_threadgroup() {
  const int last = static_cast<int>(lanes.size());
  if (!may_go_on(State::at_group, 0, last)) return false;
  raise_epochs(group_epoch, lanes[0].flags);
  for (Lane& lane : lanes) lane.state = State::runnable;
  return true;
}

void report_divergence() {
  const int all = static_cast<int>(lanes.size());
  for (const Lane& lane : lanes) {
    if (lane.state == State::done) continue;
    const bool simd = lane.state == State::at_simd;
    const int first = simd ? simdgroup_of(lane.index) * kWidth : 0;
    const int last = simd ? std::min(first + kWidth, all) : all;
    int here = 0;
    const Lane* elsewhere = nullptr;
    for (int i = first; i < last; ++i) {
      const bool with_it = lanes[i].state == lane.state && same_place(lanes[i], lane);
      here += with_it;
      if (!with_it && (elsewhere == nullptr || elsewhere->state == State::done))
        elsewhere = &lanes[i];
    }
    if (elsewhere == nullptr) continue;
    report("divergence",
           place_of(lane) + " is reached by " + std::to_string(here) + " of " +
               std::to_string(last - first) + " lanes of the " +
               (simd ? "simdgroup" : "threadgroup") + "; " +
               position(group_index, elsewhere->index) +
               (elsewhere->state == State::done ? " has returned"
                                                : " waits at " + place_of(*elsewhere)),
           lane.site, nullptr);
    return;
  }
}

void start_lanes() {
  const int n = static_cast<int>(extent[0] * extent[1] * extent[2]);
  lanes.assign(n, Lane());
  fibers.resize(n);
  simds.assign((n + kWidth - 1) / kWidth, Simd());
  group_epoch[0] = group_epoch[1] = 0;
  clear_threadgroup_objects();
  for (int i = 0; i < n; ++i) {
    lanes[i].index = i;
    prepare(fibers[i], stacks + i * kStack, kStack, run_lane);
  }
}

void run_threadgroup() {
  start_lanes();
  std::vector<int> ready;
  while (!stopped) {
    ready.clear();
    for (const Lane& lane : lanes)
      if (lane.state == State::runnable) ready.push_back(lane.index);
    std::shuffle(ready.begin(), ready.end(), dice);
    for (size_t i = 0; i < ready.size() && !stopped; ++i) {
      running_lane = ready[i];
      swap(scheduler, fibers[running_lane]);
    }
    if (stopped) return;
    bool moved = count(State::runnable, 0, static_cast<int>(lanes.size())) != 0;
    for (size_t s = 0; s < simds.size(); ++s) moved |= release_simdgroup(s);
    moved |= release_threadgroup();
    if (moved) continue;
    if (count(State::done, 0, static_cast<int>(lanes.size())) !=
        static_cast<int>(lanes.size())) {
      report_divergence();
      stopped = true;
    }
    return;
  }
}

std::string triple(uint32_t x, uint32_t y, uint32_t z) {
  return "(" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) +
         ")";
}

}  // namespace

bool run_grid(const EmuLaunch& request, const std::vector<void*>& buffers) {
  launch = &request;
  kernel_buffers = buffers;
  dice.seed(request.seed);
  steps = 0;
  stopped = false;
  if (!reserve_stacks()) return false;
  for (int i = 0; i < 3; ++i)
    groups[i] = (launch->grid[i] + launch->threadgroup[i] - 1) / launch->threadgroup[i];
  std::vector<int> order(groups[0] * groups[1] * groups[2]);
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::shuffle(order.begin(), order.end(), dice);
  for (int group : order) {
    if (stopped) break;
    group_index = group;
    group_at[0] = group % groups[0];
    group_at[1] = group / groups[0] % groups[1];
    group_at[2] = group / (groups[0] * groups[1]);
    for (int i = 0; i < 3; ++i)
      extent[i] = std::min(launch->threadgroup[i],
                           launch->grid[i] - group_at[i] * launch->threadgroup[i]);
    run_threadgroup();
  }
  return !stopped;
}

Lane& current() { return lanes[running_lane]; }

int simdgroup_of(int lane) { return lane / kWidth; }

Access access_now(Space space, bool atomic, const void* pc) {
  const int s = static_cast<int>(space);
  return {group_index, running_lane, group_epoch[s],
          simds[simdgroup_of(running_lane)].epoch[s], atomic, pc};
}

std::string position(int group, int lane) {
  // A race may name a lane of another threadgroup; all but the edge ones have the full
  // extent, and theirs is close enough to find the lane.
  const uint32_t* size = launch->threadgroup;
  return "thread " +
         triple(lane % size[0], lane / size[0] % size[1], lane / (size[0] * size[1])) +
         " of threadgroup " +
         triple(group % groups[0], group / groups[0] % groups[1],
                group / (groups[0] * groups[1]));
}

void abandon() {
  stopped = true;
  wait(State::done);
  __builtin_unreachable();
}

void count_step(const void* pc) {
  if (++steps <= launch->step_limit) return;
  report("no-progress",
         position(group_index, running_lane) + " goes on after " +
             std::to_string(launch->step_limit) + " memory accesses",
         0, pc);
  abandon();
}

}  // namespace emu

extern "C" {

using namespace emu;

static void arrive(State state, const char* operation, int site, int flags) {
  Lane& lane = current();
  count_step(nullptr);
  lane.operation = operation;
  lane.site = site;
  lane.flags = flags;
  wait(state);
}

const void* emu_exchange(const char* operation, int site, const void* value,
                         size_t size) {
  Lane& lane = current();
  lane.value = value;
  lane.size = size;
  lane.orders_memory = false;
  arrive(State::at_simd, operation, site, 0);
  return lane.slots;
}

void emu_simdgroup_barrier(int flags, int site) {
  Lane& lane = current();
  lane.size = 0;
  lane.orders_memory = true;
  arrive(State::at_simd, "simdgroup_barrier", site, flags);
}

void emu_threadgroup_barrier(int flags, int site) {
  arrive(State::at_group, "threadgroup_barrier", site, flags);
}

uint32_t emu_lane() { return static_cast<uint32_t>(running_lane) % kWidth; }

uint32_t emu_lanes() {
  const int first = simdgroup_of(running_lane) * kWidth;
  const int n = std::min(kWidth, static_cast<int>(lanes.size()) - first);
  return n == kWidth ? 0xFFFFFFFFu : (1u << n) - 1u;
}

int emu_reduction_order() { return launch->reduction_order; }

void emu_invalid_lane(const char* operation, int site, uint32_t lane) {
  report("invalid-lane",
         position(group_index, running_lane) + ": " + operation + " reads lane " +
             std::to_string(lane) + ", which does not exist",
         site, nullptr);
}

void emu_atomic(const void* address, size_t size, int changes) {
  const void* pc = __builtin_return_address(0);
  if (changes == 0 || changes == 2) touch(address, size, false, true, pc);
  if (changes != 0) touch(address, size, true, true, pc);
  // Let another lane come first now and then: an answer must not depend on the order.
  if (running && dice() % 2 == 0) wait(State::runnable);
}

void emu_peek(const void* address, void* value, size_t size) {
  memcpy(value, address, size);
}

void emu_poke(void* address, const void* value, size_t size) {
  memcpy(address, value, size);
}

}  // extern "C"
