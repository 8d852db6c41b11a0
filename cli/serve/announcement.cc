#include "cli/serve/announcement.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/serve/plan.h"

namespace baton::cli {

Announcement Announcement::From(const std::string& model, const AddressBook& book,
                                const std::map<std::string, pid_t>& pids) {
  Announcement announcement;
  announcement.model = model;
  const auto add = [&](const std::string& name, const Endpoints& endpoints) {
    const auto find = [&](const char* endpoint) {
      const auto entry = endpoints.find(endpoint);
      return entry == endpoints.end() ? std::string() : entry->second;
    };
    const auto pid = pids.find(name);
    announcement.processes.push_back(
        {name, pid == pids.end() ? 0 : pid->second, find("grpc"), find("metrics"), find("http")});
  };
  for (const auto& [name, endpoints] : book) {
    if (name != kRouterName) add(name, endpoints);
  }
  const auto router = book.find(kRouterName);
  announcement.has_router = router != book.end();
  if (announcement.has_router) add(router->first, router->second);
  return announcement;
}

std::string Announcement::ToJson() const {
  nlohmann::ordered_json json = {{"model", model}};
  if (has_router) {
    json["router"] = Router().grpc;
    json["metrics"] = Router().metrics;
  }
  for (const Process& process : processes) {
    if (!process.http.empty()) json["http"] = process.http;
  }
  json["pid"] = getpid();
  json["processes"] = nlohmann::ordered_json::array();
  for (const Process& process : processes) {
    json["processes"].push_back(
        {{"name", process.name}, {"pid", process.pid}, {"grpc", process.grpc}, {"metrics", process.metrics}});
  }
  return json.dump();
}

absl::Status Announcement::WriteTo(const std::string& path) const {
  const std::string draft = fmt::format("{}.{}.tmp", path, getpid());
  {
    std::ofstream file(draft);
    file << ToJson() << '\n';
    if (!file.flush()) return absl::ErrnoToStatus(errno, fmt::format("can't write {}", draft));
  }
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, fmt::format("can't write {}", path));
  }
  return absl::OkStatus();
}

}  // namespace baton::cli
