// Libraries that were built with OpenMP, on our pool.
#pragma once

namespace collage {

// Lets the OpenMP regions of the library that `address` lies in run on the pool. Throws, and changes nothing, when the
// library needs something of OpenMP that the pool does not have. To be called before the library runs anything.
void AdoptOpenMP(const void* address);

}  // namespace collage
