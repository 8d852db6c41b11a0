// A worker's routers hear of each other's chat templates: over a real server, without an engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "baton/fleet/v1/worker.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tests/patience.h"
#include "worker/watch_hub.h"
#include "worker/worker_service.h"

namespace baton::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::string DigestOf(char byte) { return std::string(WatchHub::kTemplateDigestBytes, byte); }

class ChatTemplatesTest : public ::testing::Test {
 protected:
  ChatTemplatesTest() {
    loop_.Start([this] {
      hub_.Publish(
          {}, 0, {}, [] { return std::vector<kv::BlockHash>(); }, absl::UnixEpoch());
      return false;
    });
    server_ = rpc::Server::Start({}, {&service_}).value();
    stub_ = fleet::v1::Worker::NewStub(rpc::MakeChannel(server_->address()));
  }
  ~ChatTemplatesTest() override {
    hub_.Close();
    server_ = nullptr;
    loop_.Stop();
  }

  // A router with this template, until it leaves.
  class Router {
   public:
    Router(ChatTemplatesTest& test, const std::string& digest) {
      fleet::v1::WatchRequest request;
      request.set_template_digest(digest);
      context_.set_deadline(std::chrono::system_clock::now() + Scaled(std::chrono::minutes(1)));
      reader_ = test.stub_->Watch(&context_, request);
    }
    ~Router() {
      context_.TryCancel();
      reader_->Finish();
    }
    // The next that it hears of templates.
    std::vector<std::string> Hear() {
      while (reader_->Read(&event_)) {
        if (!event_.has_snapshot() && !event_.delta().has_chat_templates()) continue;
        const fleet::v1::ChatTemplates& told =
            event_.has_snapshot() ? event_.snapshot().chat_templates() : event_.delta().chat_templates();
        return {told.digests().begin(), told.digests().end()};
      }
      ADD_FAILURE() << "the watch ended";
      return {};
    }
    // The next event, whatever it tells.
    const fleet::v1::WatchEvent& Next() {
      EXPECT_TRUE(reader_->Read(&event_));
      return event_;
    }

   private:
    grpc::ClientContext context_;
    std::unique_ptr<grpc::ClientReader<fleet::v1::WatchEvent>> reader_;
    fleet::v1::WatchEvent event_;
  };

  engine::Loop loop_{64};
  WatchHub hub_{fleet::v1::WorkerInfo(), [this] { loop_.PostAlways([] {}); }};
  const rpc::PeerCheck peers_{rpc::Security::Load({}).value(), [] {}};
  WorkerService service_{hub_, loop_, peers_, [](const forecast::LatencyTargets&, const std::string&) {}};
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<fleet::v1::Worker::Stub> stub_;
};

TEST_F(ChatTemplatesTest, EachRouterHearsOfTheOthersWhileTheyAreThere) {
  Router first(*this, DigestOf('a'));
  EXPECT_THAT(first.Hear(), ElementsAre(DigestOf('a')));
  {
    Router second(*this, DigestOf('b'));
    EXPECT_THAT(second.Hear(), UnorderedElementsAre(DigestOf('a'), DigestOf('b')));
    EXPECT_THAT(first.Hear(), UnorderedElementsAre(DigestOf('a'), DigestOf('b')));
  }
  EXPECT_THAT(first.Hear(), ElementsAre(DigestOf('a')));
}

TEST_F(ChatTemplatesTest, WhatTheyHaveInCommonIsNoNews) {
  Router first(*this, DigestOf('a'));
  first.Hear();
  {
    Router same(*this, DigestOf('a')), silent(*this, ""), liar(*this, std::string(100'000, 'x'));
    EXPECT_THAT(same.Hear(), ElementsAre(DigestOf('a')));
    EXPECT_THAT(silent.Hear(), ElementsAre(DigestOf('a')));
    EXPECT_THAT(liar.Hear(), ElementsAre(DigestOf('a')));
  }
  hub_.SetDraining(true);
  EXPECT_TRUE(first.Next().delta().draining()) << "the first event since the snapshot";
}

TEST_F(ChatTemplatesTest, FourAreToldAtMost) {
  std::vector<std::unique_ptr<Router>> routers;
  for (char byte = 'a'; byte < 'k'; ++byte) {
    routers.push_back(std::make_unique<Router>(*this, DigestOf(byte)));
    routers.back()->Hear();
  }
  Router last(*this, DigestOf('z'));
  EXPECT_THAT(last.Hear(), ElementsAre(DigestOf('a'), DigestOf('b'), DigestOf('c'), DigestOf('d')));
}

TEST_F(ChatTemplatesTest, NobodySaysOne) {
  Router silent(*this, "");
  EXPECT_THAT(silent.Hear(), IsEmpty());
}

}  // namespace
}  // namespace baton::worker
