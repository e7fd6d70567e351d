// SPDX-License-Identifier: Apache-2.0
// Faults of the running launch, each told once.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "state.h"

namespace emu {

std::vector<Finding> findings;

namespace {

constexpr size_t kMostFindings = 32;

// A return address as an address in this library's file, where line tables find it.
int64_t in_library(const void* pc) {
  Dl_info info;
  if (pc == nullptr || dladdr(pc, &info) == 0) return -1;
  return static_cast<const char*>(pc) - static_cast<const char*>(info.dli_fbase) - 1;
}

}  // namespace

void report(const char* kind, const std::string& text, int line, const void* pc,
            const void* other_pc) {
  const int64_t at = in_library(pc);
  for (const Finding& f : findings)
    if (strcmp(f.kind, kind) == 0 && f.line == line && f.pc == at &&
        (pc != nullptr || text == f.text))
      return;
  if (findings.size() >= kMostFindings) return;
  Finding finding;
  snprintf(finding.kind, sizeof finding.kind, "%s", kind);
  snprintf(finding.text, sizeof finding.text, "%s", text.c_str());
  finding.line = line;
  finding.pc = at;
  finding.other_pc = in_library(other_pc);
  findings.push_back(finding);
}

}  // namespace emu
