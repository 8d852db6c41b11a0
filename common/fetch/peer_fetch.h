// PeerFetch: both ends of fetches between workers, as a worker's scheduler knows them: `fetcher` brings
// blocks of its prompts from peers, `server` sends blocks of its pool to peers. Both are null on a worker
// that takes no part. Plain data.
#pragma once

namespace baton::fetch {

class Fetcher;
class PeerServer;

struct PeerFetch {
  Fetcher* fetcher = nullptr;
  PeerServer* server = nullptr;
};

}  // namespace baton::fetch
