// Libraries that were built with OpenMP, on our pool.
#pragma once

namespace collage {

// Lets the OpenMP regions of the library that `address` lies in run on the pool. Throws, and changes nothing,
// when the library needs a part of OpenMP that the pool does not have. Call it before the library runs.
void AdoptOpenMP(const void* address);

}  // namespace collage
