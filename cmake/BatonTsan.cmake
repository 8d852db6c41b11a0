# protobuf's map fields grow two members under this macro, and Debian's library was built without it: our code and the
# library would disagree on layouts.
add_compile_options(-U__SANITIZE_THREAD__)

# Boost.Asio's fences: ThreadSanitizer knows none (GCC says so, an error here), and the locks beside them order the same.
add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)

# What every program of a tsan build links besides: see there.
add_library(baton_tsan_order OBJECT
  ${PROJECT_SOURCE_DIR}/cmake/tsan/absl_synchronization.cc ${PROJECT_SOURCE_DIR}/cmake/tsan/grpc_operations.cc)
target_link_libraries(baton_tsan_order PUBLIC absl::synchronization ${CMAKE_DL_LIBS})
