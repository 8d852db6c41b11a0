// Adds a new key to a tenants file, for `baton key new --tenants FILE`. What else the file says stays as it
// is, in its order; routers that watch the file take the key within a second.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "router/tenancy/api_key.h"

namespace baton::cli {

// The file's text with the key's line among those of `tenant`, who is added if the file has no such tenant.
// `text` empty: a new file. INVALID_ARGUMENT if a router would refuse what is there or what comes out; `file`
// is for messages.
absl::StatusOr<std::string> AppendKey(std::string_view text, const std::string& file,
                                      const std::string& tenant, const router::NewApiKey& key);

// The file's content; empty if there is no such file.
absl::StatusOr<std::string> ReadTenants(const std::string& file);
// Replaces the file at once: a router sees the whole of one version. Its permissions stay; a new file is its
// owner's alone. ALREADY_EXISTS while another process changes it.
absl::Status ReplaceTenants(const std::string& file, const std::string& text);

}  // namespace baton::cli
