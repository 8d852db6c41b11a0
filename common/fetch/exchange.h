// Exchange: both ends of peer fetch as a worker's scheduler knows them: where its prompts' blocks may come
// from, and who else is served from its pool. Both null on a worker that takes no part. Plain data.
#pragma once

namespace baton::fetch {

class Fetcher;
class Holder;

struct Exchange {
  Fetcher* fetcher = nullptr;
  Holder* holder = nullptr;
};

}  // namespace baton::fetch
