#include "base/forks.h"

#include <pthread.h>

#include <atomic>
#include <shared_mutex>

namespace collage {
namespace {

// Those that a fork waits for share the mutex, and a fork has it alone. It is never destroyed. A new process
// gets another one, since its only thread has another number than the one that holds this one.
std::atomic<std::shared_mutex*> forks{nullptr};

// How many objects the calling thread has. It may itself fork the process meanwhile.
thread_local int depth = 0;

void BeforeFork() {
  if (depth == 0) forks.load()->lock();
}

void AfterForkHere() {
  if (depth == 0) forks.load()->unlock();
}

void AfterForkThere() {
  auto* fresh = new std::shared_mutex;
  if (depth > 0) fresh->lock_shared();
  forks.store(fresh);
}

std::shared_mutex& Forks() {
  static const bool made = [] {
    forks.store(new std::shared_mutex);
    return pthread_atfork(BeforeFork, AfterForkHere, AfterForkThere) == 0;
  }();
  static_cast<void>(made);
  return *forks.load();
}

}  // namespace

WithoutForks::WithoutForks() {
  if (depth == 0) Forks().lock_shared();
  ++depth;
}

WithoutForks::~WithoutForks() {
  if (--depth == 0) Forks().unlock_shared();
}

}  // namespace collage
