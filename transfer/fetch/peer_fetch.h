// PeerFetch: both ends of fetches between workers, as a worker's scheduler knows them: `fetcher` brings
// blocks of its prompts from peers, `server` sends blocks of its pool to peers. Both are null on a worker
// that takes no part. And the tiers that it loads from. Plain data.
#pragma once

namespace baton::fetch {

class DiskSource;
class Fetcher;
class PeerServer;

struct PeerFetch {
  Fetcher* fetcher = nullptr;
  PeerServer* server = nullptr;
  DiskSource* disk = nullptr;    // null: it keeps no blocks on disk
  DiskSource* shared = nullptr;  // null: it shares none
};

}  // namespace baton::fetch
