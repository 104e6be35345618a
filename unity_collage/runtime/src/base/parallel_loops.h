// TVM's parallel loops on the one pool.
#pragma once

namespace collage {

// Makes this library the one that runs the parallel loops of every TVM library loaded from now on.
//
// TVM's runtime registers its own pool while it is loaded, and the last registration wins. So this is called
// when this library is loaded, and again whenever a module is made: the import order then does not matter.
void ClaimParallelLoops();

// Forgets what was recorded of all loops: a library that is loaded may have its code where another one had
// it.
void ForgetLoops();

// Whether a TVM library loaded now would run its parallel loops here.
bool OwnsParallelLoops();

}  // namespace collage
