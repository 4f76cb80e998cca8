# Targets holdfast::holdfast and holdfast::static.
get_filename_component(holdfast_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET holdfast::holdfast)
  add_library(holdfast::holdfast SHARED IMPORTED)
  set_target_properties(holdfast::holdfast PROPERTIES
    IMPORTED_LOCATION "${holdfast_prefix}/lib/libholdfast.so"
    IMPORTED_NO_SONAME TRUE
    INTERFACE_INCLUDE_DIRECTORIES "${holdfast_prefix}/include")
  add_library(holdfast::static STATIC IMPORTED)
  set_target_properties(holdfast::static PROPERTIES
    IMPORTED_LOCATION "${holdfast_prefix}/lib/libholdfast.a"
    INTERFACE_INCLUDE_DIRECTORIES "${holdfast_prefix}/include"
    INTERFACE_LINK_LIBRARIES "pthread;${CMAKE_DL_LIBS};m")
endif()
