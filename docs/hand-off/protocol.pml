/* The hand-off, as small as it can be and still go wrong: two requests, one after the other, over a router, a
 * decode worker with a pool that one prompt fills (so that the second request gets the blocks of the first), a
 * prefill worker, and a network that loses, repeats, reorders and damages chunks. Either worker may die at any
 * time and comes back empty; the call between them may break while chunks are still under way; the client or
 * the router may go at any time.
 *
 * Checked, in every interleaving (scripts/check-protocol):
 *   - a block is freed exactly once, and at the end every block is free;
 *   - nothing is freed while a write may still reference it;
 *   - no token is sampled from KV that is not committed, or not this request's;
 *   - the client's tokens have neither gap nor repetition, across migrations;
 *   - every request reaches an end (no state where all wait, no cycle).
 *
 * What is left out: bytes, time (keepalive is "will be noticed"), several sequences at once (the pool's own fuzzer
 * has those), layers within a block (Intake counts them; its unit tests have those).
 *
 * Mutations, each of which must be found: -DNO_FENCE (any chunk is written), -DNO_CHECKSUM (damaged chunks are
 * written), -DNO_INCARNATION (a ticket from before a restart holds after it), -DNO_RELEASE (a cancelled call does not reach the scheduler), -DEAGER_FREE (blocks go back without
 * waiting for writes that began), -DNO_COMMIT_CHECK (a sequence runs when its stream ends, whatever came).
 */

#define BLOCKS 2      /* of the pool, and of a prompt */
#define REQUESTS 2
#define ANSWER 2      /* tokens */
#define DIALS 2       /* decode workers that the router tries per request */
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef MISHAPS
#define MISHAPS 1
#endif
#define DAMAGED 9     /* a payload that fails its checksum; others name the request whose KV it is */

mtype = { Waiting, Dialing, Streaming };                                       /* request, router */
mtype = { Nothing, Reserved, Receiving, Committed, Running, Releasing };       /* sequence, decode worker */

/* What may still go wrong. */
byte crashes = CRASHES, mishaps = MISHAPS, hangups = 1;

/* Router. A call is one attempt on a decode worker. */
mtype request_state = Waiting;
byte request = 1, call = 0, dials = 0, tokens_seen = 0;
byte hung_up = 0;         /* call that the router ended */
byte lost = 0;            /* call that broke */
bool served = false;      /* all requests have ended */
chan asked = [1] of { byte /* call */, byte /* request */, byte /* resumed tokens */ };
chan tokens = [2] of { byte /* call */, byte /* position */ };

/* Decode worker. */
mtype state = Nothing;
byte incarnation = 1, next_ticket = 1;
byte seq_call = 0, seq_request = 0, position = 0, ticket = 0;
byte owner[BLOCKS], generation[BLOCKS], content[BLOCKS];
byte writing[BLOCKS];     /* payload of a write that has begun, 0: none */
byte writing_for[BLOCKS]; /* its ticket */
bool received[BLOCKS];

/* Prefill worker, and the hand-off's call. */
byte handoff = 0;         /* ticket of the open call, 0: none */
byte prefill_ticket = 0, prefill_request = 0, prefill_incarnation = 0, shipped = 0;
byte prefill_generation[BLOCKS];
byte stream_ended = 0;    /* ticket whose stream came to its end or broke */
chan net = [3] of { byte /* incarnation */, byte /* ticket */, byte /* block */, byte /* generation */,
                    byte /* payload */ };

#ifdef NO_INCARNATION
#define SAME_LIFE(n) true
#else
#define SAME_LIFE(n) (n == incarnation)
#endif

hidden byte at, each, its_life, its_ticket, its_block, its_generation, payload, its_call, its_request, resumed,
    its_position;  /* scratch, inside atomic only: no part of the state */

/* ---- router ---- */
inline end_request() { request++; request_state = Waiting; dials = 0; tokens_seen = 0 }

proctype Router() {
  do
  :: atomic { request <= REQUESTS && request_state == Waiting && dials < DIALS && empty(asked) ->
       call++; dials++;
       asked!call, request, tokens_seen;
       request_state = Dialing }
  :: atomic { request <= REQUESTS && request_state == Waiting && dials == DIALS -> end_request() }
  :: atomic { tokens?its_call, its_position ->
       if
       :: its_call == call && request_state != Waiting ->
            assert(its_position == tokens_seen);               /* neither gap nor repetition */
            tokens_seen++;
            request_state = Streaming;
            if :: tokens_seen == ANSWER -> hung_up = call; end_request() :: else fi
       :: else                                      /* a lost call's last words */
       fi }
  :: atomic { request_state != Waiting && lost == call -> request_state = Waiting }  /* migrate, or dial again */
  :: atomic { request <= REQUESTS && request_state != Waiting && hangups > 0 ->
       hangups--; hung_up = call; end_request() }      /* client cancels, its deadline passes, or the router dies */
  :: request > REQUESTS -> served = true; break
  od
}

/* ---- decode worker ---- */
inline close_ticket() { ticket = 0; handoff = 0; stream_ended = 0 }

inline free_all() {
  at = 0;
  do
  :: at < BLOCKS ->
       assert(owner[at] != 0);                       /* freed exactly once */
       assert(writing[at] == 0);                     /* nothing is freed under a write */
       owner[at] = 0; received[at] = false; content[at] = 0; at++
  :: else -> break
  od;
  state = Nothing; seq_call = 0; seq_request = 0; position = 0
}

proctype DecodeWorker() {
end:
  do
  :: atomic { state == Nothing && asked?[its_call, its_request, resumed] && owner[0] == 0 && owner[1] == 0 ->
       asked?its_call, its_request, resumed;
       if
       :: hung_up == its_call || lost == its_call -> skip
       :: else ->
            seq_call = its_call; seq_request = its_request; position = resumed; at = 0;
            do
            :: at < BLOCKS ->
                 owner[at] = its_call; generation[at] = generation[at] + 1; received[at] = false; at++
            :: else -> break
            od;
            state = Reserved
       fi }
  /* Hands off, as long as there are tickets to give (a bound of the model, in life the list of prefill workers), */
  :: atomic { state == Reserved && next_ticket < 3 ->
       ticket = next_ticket; next_ticket++; handoff = ticket; stream_ended = 0;
       state = Receiving }
  /* or prefills here: the rest after what is committed. */
  :: atomic { state == Reserved ->
       at = 0;
       do
       :: at < BLOCKS -> if :: !received[at] && writing[at] == 0 -> content[at] = seq_request; received[at] = true
                           :: else fi; at++
       :: else -> break
       od;
       if :: received[0] && received[1] -> state = Committed :: else fi }
  /* A chunk arrives. */
  :: atomic { net?its_life, its_ticket, its_block, its_generation, payload ->
       if
#ifdef NO_FENCE
       :: owner[its_block] != 0 && writing[its_block] == 0 ->
#else
       :: state == Receiving && SAME_LIFE(its_life) && its_ticket == ticket && its_generation == generation[its_block] && !received[its_block] &&
          writing[its_block] == 0 ->
#endif
#ifdef NO_CHECKSUM
            writing[its_block] = payload; writing_for[its_block] = ticket
#else
            if
            :: payload != DAMAGED -> writing[its_block] = payload; writing_for[its_block] = ticket
            :: else -> if :: state == Receiving -> close_ticket(); state = Reserved :: else fi
            fi
#endif
       :: else ->                                   /* refused; the hand-off that it came by is given up */
            if :: state == Receiving -> close_ticket(); state = Reserved :: else fi
       fi }
  /* A write ends. It counts if its ticket is still open. */
  :: atomic { writing[0] != 0 -> content[0] = writing[0]; writing[0] = 0;
       if :: ticket != 0 && writing_for[0] == ticket -> received[0] = true :: else fi; writing_for[0] = 0 }
  :: atomic { writing[1] != 0 -> content[1] = writing[1]; writing[1] = 0;
       if :: ticket != 0 && writing_for[1] == ticket -> received[1] = true :: else fi; writing_for[1] = 0 }
  :: atomic { state == Receiving && received[0] && received[1] -> close_ticket(); state = Committed }
  /* The stream ended, or broke: on from what is committed. */
  :: atomic { state == Receiving && stream_ended == ticket ->
#ifdef NO_COMMIT_CHECK
       close_ticket(); state = Committed
#else
       close_ticket(); state = Reserved
#endif
     }
  /* Steps, as long as somebody reads. */
  :: atomic { (state == Committed || state == Running) && nfull(tokens) && position < ANSWER && hung_up != seq_call &&
              lost != seq_call ->
       at = 0;
       do
       :: at < BLOCKS -> assert(owner[at] == seq_call && content[at] == seq_request); at++
       :: else -> break
       od;
       tokens!seq_call, position; position++; state = Running }
  :: atomic { state != Nothing && state != Releasing && position == ANSWER -> close_ticket(); state = Releasing }
#ifndef NO_RELEASE
  /* Cancelled, in any state. */
  :: atomic { state != Nothing && state != Releasing && (hung_up == seq_call || lost == seq_call) ->
       close_ticket(); state = Releasing }
#endif
#ifdef EAGER_FREE
  :: atomic { state == Releasing -> free_all() }
#else
  :: atomic { state == Releasing && writing[0] == 0 && writing[1] == 0 -> free_all() }
#endif
  /* Dies, and comes back with nothing and another incarnation; its callers notice. */
  :: atomic { crashes > 0 ->
       crashes--; incarnation++;
       if :: seq_call != 0 -> lost = seq_call :: else fi;
       close_ticket(); state = Nothing; seq_call = 0; seq_request = 0; at = 0;
       do
       :: at < BLOCKS -> owner[at] = 0; generation[at] = 0; content[at] = 0; writing[at] = 0; received[at] = false; at++
       :: else -> break
       od;
       next_ticket = 1 }
  /* A request that hung while its router went. */
  :: atomic { served && state == Nothing && asked?[its_call, its_request, resumed] -> asked?its_call, its_request, resumed }
  :: atomic { served && tokens?[its_call, its_request] -> tokens?its_call, its_request }
  od
}

/* ---- prefill worker ---- */
inline forget_prompt() {
  prefill_ticket = 0; prefill_request = 0; prefill_incarnation = 0; shipped = 0;
  prefill_generation[0] = 0; prefill_generation[1] = 0
}

proctype PrefillWorker() {
end:
  do
  :: atomic { handoff != 0 && prefill_ticket == 0 && stream_ended != handoff ->
       prefill_ticket = handoff; prefill_request = seq_request; prefill_incarnation = incarnation; shipped = 0; each = 0;
       do
       :: each < BLOCKS -> prefill_generation[each] = generation[each]; each++
       :: else -> break
       od }
  /* Either block first; bit j of `shipped`: block j has left. */
  :: atomic { prefill_ticket != 0 && shipped != 3 && nfull(net) ->
       if
       :: (shipped & 1) == 0 -> each = 0
       :: (shipped & 2) == 0 -> each = 1
       fi;
       net!prefill_incarnation, prefill_ticket, each, prefill_generation[each], prefill_request;
       shipped = shipped | (1 << each) }
  :: atomic { prefill_ticket != 0 && shipped == 3 ->
       if :: handoff == prefill_ticket -> stream_ended = prefill_ticket :: else fi;
       forget_prompt() }
  /* Its caller went; it notices, perhaps after a while. */
  :: atomic { prefill_ticket != 0 && handoff != prefill_ticket -> forget_prompt() }
  /* Dies, and comes back with nothing. */
  :: atomic { prefill_ticket != 0 && crashes > 0 ->
       crashes--;
       if :: handoff == prefill_ticket -> stream_ended = prefill_ticket :: else fi;
       forget_prompt() }
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
  :: atomic { mishaps > 0 && handoff != 0 && stream_ended != handoff -> mishaps--; stream_ended = handoff }
  /* The call between router and decode worker breaks: both notice. */
  :: atomic { mishaps > 0 && seq_call != 0 && seq_call == call && hung_up != call && lost != call ->
       mishaps--; lost = call }
  od
}

/* When nobody can move any more: everything has ended, and everything is free. */
proctype Monitor() {
  timeout ->
    assert(served && state == Nothing);
    assert(owner[0] == 0 && owner[1] == 0)
}

init {
  atomic { run Router(); run DecodeWorker(); run PrefillWorker(); run Network(); run Monitor() }
}
