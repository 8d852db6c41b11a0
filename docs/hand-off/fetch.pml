/* Peer fetch, as small as it can be and still go wrong: a worker that fetches the two blocks of one prompt and then, into
 * the same two blocks of its pool, those of another; a holder that has some of them, wants its room for its own work, and
 * may drain; and a network that loses, repeats, reorders and damages chunks. Either may die at any time and comes back
 * empty; the call between them may break while chunks are still under way; the fetcher may give up at any time, because its
 * request was cancelled or because computing would be faster.
 *
 * Checked, in every interleaving (scripts/check-protocol):
 *   - the holder's blocks are neither evicted nor freed while a fetch references them, not by its own work and not
 *     by its leaving;
 *   - a fetched block is committed only after its checks: what is committed are the bytes that were asked for;
 *   - nothing of the fetcher's is freed, or computed into, while a write may still reference it;
 *   - a prompt goes on from the right KV alone, whatever became of its fetch;
 *   - each fetch ends: no pin and no block is left (no state where all wait).
 *
 * What is left out: bytes, time ("gives up" comes whenever it likes), several fetches at once on a holder (it refuses
 * or serves them one by one; tests/unit/transfer/fetch has the rest), layers within a block.
 *
 * Mutations, each of which must be found: -DNO_PIN (the holder's own work takes what a fetch references), -DEAGER_LEAVE (a
 * draining holder goes under a fetch), -DNO_FENCE, -DNO_INCARNATION, -DNO_CHECKSUM, -DNO_COMMIT_CHECK (what was asked for counts
 * as here when the stream ends), -DEAGER_FREE (a prompt goes on without waiting for writes that began), -DNO_RELEASE (the
 * holder does not hear that its caller has gone).
 */

#define BLOCKS 2
#define PROMPTS 2
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef MISHAPS
#define MISHAPS 1
#endif
#define DAMAGED 9
#define KEY(prompt, at) (2 * (prompt) - 1 + (at)) /* hash of block `at`: 1, 2 of the first prompt, 3, 4 of the second */

mtype = { Idle, Fetching, Ending };

/* What may still go wrong, or get in the way. */
byte crashes = CRASHES, mishaps = MISHAPS, work = 2, drains = 1;

/* Fetcher. */
mtype state = Idle;
byte prompt = 1, incarnation = 1, next_ticket = 1;
byte ticket = 0;          /* of the running fetch */
bool held[BLOCKS];        /* its own blocks, by the prompt */
byte generation[BLOCKS], content[BLOCKS];
byte writing[BLOCKS];     /* payload of a write that has begun, 0: none */
byte writing_for[BLOCKS]; /* its ticket */
bool committed[BLOCKS];

/* The call. */
byte call = 0;            /* ticket of the open call, 0: none */
byte stream_ended = 0;    /* ticket whose stream came to its end or broke */
chan asks = [2] of { byte /* incarnation */, byte /* ticket */, byte /* prompt */, byte, byte /* generations */ };
chan net = [3] of { byte /* incarnation */, byte /* ticket */, byte /* block */, byte /* generation */,
                    byte /* payload */ };

/* Holder: slot i has block i of either prompt, or nothing. */
byte has[BLOCKS];
byte serving = 0, serving_life = 0;
byte found = 0, shipped = 0; /* bits */
byte serving_generation[BLOCKS];
bool draining = false;

#ifdef NO_INCARNATION
#define SAME_LIFE(n) true
#else
#define SAME_LIFE(n) (n == incarnation)
#endif

hidden byte at, each, its_life, its_ticket, its_block, its_generation, payload, its_prompt, first, second;

/* ---- fetcher ---- */
inline close_call() { ticket = 0; call = 0; stream_ended = 0 }

inline go_on() {
  /* What is committed is used as it is, the rest is computed; then the prompt is served and its blocks go. */
  at = 0;
  do
  :: at < BLOCKS ->
       assert(held[at] && writing[at] == 0);          /* nothing is computed into, or freed, under a write */
       if :: !committed[at] -> content[at] = KEY(prompt, at) :: else fi;
       assert(content[at] == KEY(prompt, at));        /* the right KV alone */
       held[at] = false; committed[at] = false; content[at] = 0; at++
  :: else -> break
  od;
  prompt++;
  state = Idle
}

inline end_write(block) {
  content[block] = writing[block]; writing[block] = 0;
  if
  :: ticket != 0 && writing_for[block] == ticket ->
       assert(content[block] == KEY(prompt, block));  /* committed after its checks alone */
       committed[block] = true
  :: else
  fi;
  writing_for[block] = 0
}

proctype Fetcher() {
end:
  do
  :: atomic { state == Idle && prompt <= PROMPTS && nfull(asks) ->
       at = 0;
       do
       :: at < BLOCKS -> held[at] = true; generation[at]++; at++
       :: else -> break
       od;
       ticket = next_ticket; next_ticket++; call = ticket; stream_ended = 0;
       asks!incarnation, ticket, prompt, generation[0], generation[1];
       state = Fetching }
  /* A chunk arrives. */
  :: atomic { net?its_life, its_ticket, its_block, its_generation, payload ->
       if
#ifdef NO_FENCE
       :: state == Fetching && writing[its_block] == 0 && !committed[its_block] ->
#else
       :: state == Fetching && SAME_LIFE(its_life) && its_ticket == ticket && its_generation == generation[its_block] &&
          writing[its_block] == 0 && !committed[its_block] ->
#endif
#ifdef NO_CHECKSUM
            writing[its_block] = payload; writing_for[its_block] = ticket
#else
            if
            :: payload != DAMAGED -> writing[its_block] = payload; writing_for[its_block] = ticket
            :: else -> close_call(); state = Ending
            fi
#endif
       :: else -> if :: state == Fetching -> close_call(); state = Ending :: else fi
       fi }
  :: atomic { writing[0] != 0 -> end_write(0) }
  :: atomic { writing[1] != 0 -> end_write(1) }
  /* All is here; or the stream ended, or broke; or it is given up. */
  :: atomic { state == Fetching && committed[0] && committed[1] -> close_call(); state = Ending }
  :: atomic { state == Fetching && stream_ended == ticket ->
#ifdef NO_COMMIT_CHECK
       committed[0] = true; committed[1] = true;
#endif
       close_call(); state = Ending }
  :: atomic { state == Fetching -> close_call(); state = Ending }
#ifdef EAGER_FREE
  :: atomic { state == Ending -> go_on() }
#else
  :: atomic { state == Ending && writing[0] == 0 && writing[1] == 0 -> go_on() }
#endif
  /* Dies, with its prompt, and comes back with nothing and another incarnation. */
  :: atomic { crashes > 0 ->
       crashes--; incarnation++;
       close_call(); at = 0;
       if :: state != Idle -> prompt++ :: else fi;
       state = Idle;
       do
       :: at < BLOCKS ->
            held[at] = false; generation[at] = 0; content[at] = 0; writing[at] = 0; writing_for[at] = 0; committed[at] = false; at++
       :: else -> break
       od;
       next_ticket = 1 }
  od
}

/* ---- holder ---- */
#define TAKES (serving != 0 && call == serving && serving_life == incarnation)
inline let_go() {
  serving = 0; serving_life = 0; found = 0; shipped = 0; serving_generation[0] = 0; serving_generation[1] = 0
}
inline end_stream() {
  if :: TAKES -> stream_ended = serving :: else fi;
  let_go()
}
/* From now on the block is another sequence's, or free. */
inline overwrite(slot, key) {
  assert((found & (1 << slot)) == 0);                 /* nothing is evicted or freed while a fetch references it */
  has[slot] = key
}

proctype Holder() {
end:
  do
  /* An ask: as many of its leading blocks as are here are pinned. A draining holder still answers. */
  :: atomic { serving == 0 && nempty(asks) -> asks?its_life, its_ticket, its_prompt, first, second;
       serving = its_ticket; serving_life = its_life; serving_generation[0] = first; serving_generation[1] = second;
       if
       :: has[0] == KEY(its_prompt, 0) -> if :: has[1] == KEY(its_prompt, 1) -> found = 3 :: else -> found = 1 fi
       :: else -> found = 0
       fi }
  /* As many as may be are served already. */
  :: atomic { serving != 0 && nempty(asks) -> asks?its_life, its_ticket, its_prompt, first, second;
       if :: its_life == incarnation && call == its_ticket -> stream_ended = its_ticket :: else fi }
  /* Ships while its caller takes. What it ships late is already in `net`. */
  :: atomic { TAKES && (found & 1 & ~shipped) && nfull(net) ->
       net!serving_life, serving, 0, serving_generation[0], has[0]; shipped = shipped | 1 }
  :: atomic { TAKES && (found & 2 & ~shipped) && nfull(net) ->
       net!serving_life, serving, 1, serving_generation[1], has[1]; shipped = shipped | 2 }
  :: atomic { serving != 0 && shipped == found -> end_stream() }
#ifndef NO_RELEASE
  /* Its caller went; it notices, perhaps after a while. */
  :: atomic { serving != 0 && !TAKES -> let_go() }
#endif
  /* Its own work wants a slot: fetches are ended first. */
  :: atomic { work > 0 && found != 0 -> end_stream() }
#ifdef NO_PIN
  :: atomic { work > 0 && has[0] <= 2 -> work--; overwrite(0, 3) }
  :: atomic { work > 0 && has[1] <= 2 -> work--; overwrite(1, 4) }
#else
  :: atomic { work > 0 && has[0] <= 2 && (found & 1) == 0 -> work--; overwrite(0, 3) }
  :: atomic { work > 0 && has[1] <= 2 && (found & 2) == 0 -> work--; overwrite(1, 4) }
#endif
  /* Told to leave: it goes when no fetch runs from it, or ends them when its grace is over; another comes, with nothing. */
  :: atomic { drains > 0 -> drains--; draining = true }
  :: atomic { draining && serving != 0 -> end_stream() }
#ifdef EAGER_LEAVE
  :: atomic { draining -> draining = false; overwrite(0, 0); overwrite(1, 0) }
#else
  :: atomic { draining && serving == 0 -> draining = false; overwrite(0, 0); overwrite(1, 0) }
#endif
  /* Dies, and comes back with nothing. */
  :: atomic { crashes > 0 -> crashes--; end_stream(); draining = false; has[0] = 0; has[1] = 0 }
  od
}

/* ---- the network ---- */
proctype Network() {
end:
  do
  :: atomic { mishaps > 0 && nempty(net) -> mishaps--; net?its_life, its_ticket, its_block, its_generation, payload;
       if
       :: true                                      /* lost */
       :: net!its_life, its_ticket, its_block, its_generation, payload                         /* late: behind all others */
       :: len(net) < 2 -> net!its_life, its_ticket, its_block, its_generation, payload; net!its_life, its_ticket, its_block, its_generation, payload
       :: net!its_life, its_ticket, its_block, its_generation, DAMAGED
       fi }
  :: atomic { mishaps > 0 && call != 0 && stream_ended != call -> mishaps--; stream_ended = call }
  od
}

/* When nobody can move any more: every prompt was served or died with its worker, and nothing is held on either side. */
proctype Monitor() {
  timeout ->
    assert(prompt > PROMPTS && state == Idle && call == 0);
    assert(serving == 0 && found == 0);
    assert(!held[0] && !held[1])
}

init {
  atomic {
    has[0] = KEY(1, 0); has[1] = KEY(1, 1);
    run Fetcher(); run Holder(); run Network(); run Monitor()
  }
}
