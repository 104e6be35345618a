// A free list of execution contexts, so that one function can run on several threads at once.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace collage {

template <typename Context>
class ContextPool {
 public:
  // Holds a context until the end of the scope, also when an error is thrown.
  class Lease {
   public:
    Lease(ContextPool* pool, std::unique_ptr<Context> context) : pool_(pool), context_(std::move(context)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { pool_->Return(std::move(context_)); }
    Context* operator->() const { return context_.get(); }

   private:
    ContextPool* pool_;
    std::unique_ptr<Context> context_;
  };

  // Takes a free context, or one from make() when all are in use.
  template <typename Make>
  Lease Take(const Make& make) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Context> context = std::move(free_.back());
        free_.pop_back();
        return Lease(this, std::move(context));
      }
      // Reserves room for every context, so that returning one does not allocate.
      free_.reserve(++made_);
    }
    return Lease(this, make());
  }

 private:
  void Return(std::unique_ptr<Context> context) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(context));
  }

  std::mutex mutex_;
  size_t made_ = 0;
  std::vector<std::unique_ptr<Context>> free_;
};

}  // namespace collage
