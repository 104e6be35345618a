// Checks of the thread pool that need C++: each is called by its name and returns whether it holds.
#include <cstring>

#include "base/callers.h"

namespace {

using namespace collage;

// Two callers are enough for a loop of two threads. Loops of more threads are not affected.
bool FewCallersAreRemembered() {
  Callers callers;
  callers.Add(1);
  const bool now = callers.AreMany(2);
  callers.Add(-1);
  return now && !callers.AreMany(64);
}

bool ManyCallersAreRemembered() {
  Callers callers;
  for (int attempt = 0; attempt < 100; ++attempt) {  // the memory is short, and the machine may be busy
    callers.Add(5);
    const bool now = callers.AreMany(6), fewer = callers.AreMany(2);
    callers.Add(-5);
    if (now && fewer && callers.AreMany(6) && callers.AreMany(3)) return true;
  }
  return false;
}

constexpr struct {
  const char* name;
  bool (*holds)();
} kChecks[] = {
    {"few callers", FewCallersAreRemembered},
    {"many callers", ManyCallersAreRemembered},
};

}  // namespace

int main(int count, char** names) {
  for (const auto& check : kChecks) {
    if (count == 2 && std::strcmp(names[1], check.name) == 0) return check.holds() ? 0 : 1;
  }
  return 2;
}
