// Adds to an error where it happened.
#pragma once

#include <tvm/ffi/error.h>

#include <string>

namespace collage {

// Runs body() and puts "<where>: " before the text of any error that leaves it.
template <typename Body>
auto Within(const std::string& where, const Body& body) {
  try {
    return body();
  } catch (const tvm::ffi::Error& error) {
    throw tvm::ffi::Error(error.kind(), where + ": " + error.message(), error.backtrace());
  }
}

}  // namespace collage
