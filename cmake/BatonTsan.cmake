# What every program of a tsan build links besides: see there.
add_library(baton_tsan_locks OBJECT ${PROJECT_SOURCE_DIR}/cmake/tsan/absl_synchronization.cc)
target_link_libraries(baton_tsan_locks PUBLIC absl::synchronization ${CMAKE_DL_LIBS})
