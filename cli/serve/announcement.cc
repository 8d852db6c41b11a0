#include "cli/serve/announcement.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/serve/plan.h"

namespace baton::cli {

Announcement Announcement::From(const std::vector<ServedModel>& models, const AddressBook& book,
                                const std::map<std::string, pid_t>& pids) {
  Announcement announcement;
  for (const ServedModel& model : models) announcement.models.push_back(model.name);
  std::map<std::string, std::string> model_of;
  for (const ServedWorker& worker : WorkersOf(models)) model_of[worker.name] = models[worker.model].name;
  const auto add = [&](const std::string& name, const Endpoints& endpoints) {
    const auto find = [&](const char* endpoint) {
      const auto entry = endpoints.find(endpoint);
      return entry == endpoints.end() ? std::string() : entry->second;
    };
    const auto pid = pids.find(name);
    const auto model = model_of.find(name);
    announcement.processes.push_back({name, pid == pids.end() ? 0 : pid->second, find("grpc"),
                                      find("metrics"), find("http"),
                                      model == model_of.end() ? "" : model->second});
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
  nlohmann::ordered_json json = {{"model", models.front()}, {"models", models}};
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
    nlohmann::ordered_json one = {
        {"name", process.name}, {"pid", process.pid}, {"grpc", process.grpc}, {"metrics", process.metrics}};
    if (!process.model.empty()) one["model"] = process.model;
    json["processes"].push_back(std::move(one));
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
