// Short forms for absl::Status plumbing.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#define BATON_RETURN_IF_ERROR(expr)                                                       \
  do {                                                                                    \
    if (::absl::Status baton_status_ = (expr); !baton_status_.ok()) return baton_status_; \
  } while (false)

#define BATON_CONCAT_INNER_(a, b) a##b
#define BATON_CONCAT_(a, b) BATON_CONCAT_INNER_(a, b)
#define BATON_ASSIGN_OR_RETURN(lhs, expr) \
  BATON_ASSIGN_OR_RETURN_IMPL_(BATON_CONCAT_(statusor_, __LINE__), lhs, expr)
#define BATON_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr)  \
  auto statusor = (expr);                                  \
  if (!statusor.ok()) return std::move(statusor).status(); \
  lhs = std::move(statusor).value()
