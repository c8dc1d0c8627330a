/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_STREAM_H
#define AGENT_STREAM_H

/**
 * @file
 * The KV events of one rank: a SUB socket, and a DEALER to the replay socket. Batches are numbered
 * without gaps. A gap is repaired by a replay; what a replay does not have any more, or a number
 * that goes back (the engine is another one), makes the rank start clean.
 *
 * A rank whose events the router does not take as fast is held back: batches stay in its sockets,
 * which hold a few, then in TCP's buffers, then with the engine. What that forgets is a gap.
 */

#include <zmq.h>

#include "app.h"
#include "kvr_kvmap.h"

#define STREAM_BATCHES 64 /* that a socket holds, see stream_zmq.c */

struct app_stream {
	struct app *app;
	uint32_t dp_rank;
	void *sub, *dealer, *monitor;
	struct app_stream *to;	/* whose events the last batch had: its own, unless one tells all */
	bool held;		/* no batch is taken: too many events of `to` wait for the router */
	uint64_t held_us;	/* since then */
	bool others;		/* it has told events of other ranks, too */
	struct app_news slow;	/* of the log */
	struct app_news odd[3]; /* the same: events that were not read, by what they are */
	struct app_news mute;	/* the same: questions that were not answered ... */
	uint32_t unanswered;	/* ... in a row; they are asked less often */
	struct kvr_kvev_decoder *decoder;
	struct kvr_kvmap *map;
	uint64_t next;	 /* number of the batch that comes next */
	bool fresh;	 /* no batch was seen: any number may be the first */
	bool replaying;	 /* live batches wait in the SUB socket */
	bool begun;	 /* the replay has brought something */
	bool audit;	 /* the replay was asked for without a gap */
	uint32_t again;	 /* asked for once more, as some of its answers were lost */
	uint64_t floor;	 /* live batches from here to next are known from the last replay */
	uint64_t seen;	 /* the live batch that showed the gap; UINT64_MAX: none */
	zmq_msg_t shown; /* what it tells, until a replay has told it */
	uint64_t replay_us, audit_us; /* when it is given up; when the next audit is */
	uint64_t behind;	      /* where an audit found that the engine has no more */
	uint64_t dump_pos;
	bool size_told;
	uint32_t bad_batches; /* of this life, as the table's counters are */
};

/* stream_apply.c */
/** Apply a batch to the table of the rank that it names; one that cannot be read makes that start
 * clean. */
void app_stream_apply(struct app_stream *s, const uint8_t *payload, size_t len);
/** The rank has an empty cache from here on, because of @p why; and all others have, when its
 * stream is one that tells of them, too. */
void app_stream_clean(struct app_stream *s, const char *why);
/** The same, as it is another engine that tells from here on, or may be. */
void app_stream_renew(struct app_stream *s, const char *why);
/** Count something that is no batch, and let the router's operators know. */
void app_stream_bad(struct app_stream *s);
/** A table of @p blocks that tells the router what changes. NULL: no memory. */
struct kvr_kvmap *app_stream_table(struct app_stream *s, uint32_t blocks, uint64_t seed);

/* stream_zmq.c */
/** Connect the sockets, and have the loop woken by them. @return 0 or -errno */
int app_stream_open(struct app_stream *s);
/** The DEALER again, when it was closed to drop what it holds; NULL when it cannot be had. */
void app_stream_open_dealer(struct app_stream *s);
/** Clear the wake-ups of sockets that this turn has not read to the end. Their descriptors would
 * stay readable and keep the loop busy: libzmq clears one only when the socket is used. */
void app_stream_clear_wakeups(struct app_stream *s);
/** Close those that there are. */
void app_stream_close(struct app_stream *s);

#endif
