// The files of `baton serve --observability DIR`: a Prometheus configuration for the processes of this
// machine, the rules, and Grafana's provisioning with the dashboards. The labels are those that the Helm
// chart makes.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "cli/serve/announcement.h"

namespace baton::cli {

// Creates `folder` and writes all files, or says which could not be written. Targets are a file of their own,
// which Prometheus reads again when it changes.
absl::Status WriteObservability(const Announcement& announcement, const std::string& folder);

}  // namespace baton::cli
