# protobuf's map fields grow two members under this macro, and Debian's library was built without it: our code and the
# library would disagree on layouts.
add_compile_options(-U__SANITIZE_THREAD__)

# Boost.Asio's fences: ThreadSanitizer does not support fences (GCC warns, which is an error here), and the locks beside them give the same order.
add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)

# Every program of a tsan build links this too: see the sources.
add_library(baton_tsan_order OBJECT
  ${PROJECT_SOURCE_DIR}/cmake/tsan/absl_synchronization.cc ${PROJECT_SOURCE_DIR}/cmake/tsan/grpc_operations.cc)
target_link_libraries(baton_tsan_order PUBLIC absl::synchronization ${CMAKE_DL_LIBS})
