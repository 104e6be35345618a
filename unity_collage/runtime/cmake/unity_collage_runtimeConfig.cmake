# find_package(unity_collage_runtime): the target unity_collage::runtime runs compiled programs.
#
# This file is in each bundle, beside the libraries, and in the installed package, where tvm_ffi is another package.
get_filename_component(_here "${CMAKE_CURRENT_LIST_DIR}" ABSOLUTE)
get_filename_component(_root "${_here}/.." ABSOLUTE)
find_path(_include unity_collage.h PATHS "${_here}/include" "${_root}/include" NO_DEFAULT_PATH NO_CACHE)
find_library(_runtime collage_runtime PATHS "${_here}" "${_root}/lib" NO_DEFAULT_PATH NO_CACHE)
find_library(_ffi tvm_ffi PATHS "${_here}" "${_root}/../../tvm_ffi/lib" NO_DEFAULT_PATH NO_CACHE)
if(NOT _include OR NOT _runtime OR NOT _ffi)
  set(unity_collage_runtime_FOUND FALSE)
  set(unity_collage_runtime_NOT_FOUND_MESSAGE "unity_collage.h, libcollage_runtime.so or libtvm_ffi.so is missing near ${_here}")
  return()
endif()
if(NOT TARGET unity_collage::runtime)
  add_library(unity_collage::runtime INTERFACE IMPORTED)
  target_include_directories(unity_collage::runtime INTERFACE "${_include}")
  # Links both libraries even if only one is used, so that the folder of each is in the program's search path for
  # libraries.
  target_link_libraries(unity_collage::runtime INTERFACE "-Wl,--no-as-needed" "${_runtime}" "${_ffi}")
endif()
