/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_STREAM_H
#define AGENT_STREAM_H

/**
 * @file
 * KV events of one rank: a SUB socket, and a DEALER for the replay socket. Batches are numbered
 * without gaps. A gap is repaired by a replay. If the replay lacks batches, or a number decreases
 * because the engine was restarted, the rank starts with an empty cache.
 *
 * Back-pressure: if the router does not accept events fast enough, batches remain in the sockets,
 * which hold a few, then in TCP's buffers, then at the engine. Batches that the engine drops are a
 * gap.
 */

#include <zmq.h>

#include "app.h"
#include "kvr_kvmap.h"

#define STREAM_BATCHES 64 /* batches that a socket holds, see stream_zmq.c */

struct app_stream {
	struct app *app;
	uint32_t dp_rank;
	void *sub, *dealer, *monitor;
	struct app_stream *to;	/* stream of the rank in the last batch: this one, unless one
				   publisher serves all ranks */
	bool held;		/* reading stopped: too many events of `to` wait for the router */
	uint64_t held_us;	/* since this time */
	bool others;		/* it published events of other ranks */
	struct app_news slow;	/* last log about waiting */
	struct app_news odd[3]; /* last logs about unreadable events, by kind */
	struct app_news mute;	/* last log about unanswered questions ... */
	uint32_t unanswered;	/* ... and their number in a row, which makes audits rarer */
	struct kvr_kvev_decoder *decoder;
	struct kvr_kvmap *map;
	uint64_t next;	 /* number of the next batch */
	bool fresh;	 /* no batch was read: any number may be first */
	bool replaying;	 /* live batches wait in the SUB socket */
	bool begun;	 /* the replay returned a batch */
	bool audit;	 /* the replay was requested without a gap */
	uint32_t again;	 /* attempts to get the rest of a replay */
	uint64_t floor;	 /* live batches from here to next are known from the last replay */
	uint64_t seen;	 /* the live batch that showed the gap; UINT64_MAX: none */
	zmq_msg_t shown; /* its content, until a replay includes it */
	uint64_t replay_us, audit_us; /* time to give up the replay; time of the next audit */
	uint64_t behind; /* position at which an audit found that the engine lacks batches */
	uint64_t dump_pos;
	bool size_reported;
	uint32_t bad_batches; /* of this incarnation, like the table's counters */
};

/* stream_apply.c */
/** Apply a batch to the table of its rank. An unreadable batch resets that rank. */
void app_stream_apply(struct app_stream *stream, const uint8_t *payload, size_t len);
/** Reset the cache of the rank because of @p why, and of all ranks if the stream serves them. */
void app_stream_clean(struct app_stream *stream, const char *why);
/** The same if another engine may follow. */
void app_stream_renew(struct app_stream *stream, const char *why);
/** Count an unreadable message, and report it to the router. */
void app_stream_bad(struct app_stream *stream);
/** Create a table of @p blocks that reports changes to the router. NULL: no memory. */
struct kvr_kvmap *app_stream_table(struct app_stream *stream, uint32_t blocks, uint64_t seed);

/* stream_zmq.c */
/** Connect the sockets and add them to epoll. @return 0 or -errno */
int app_stream_open(struct app_stream *stream);
/** Open the DEALER again after it was closed to drop its messages; dealer is NULL on failure. */
void app_stream_open_dealer(struct app_stream *stream);
/** Clear the wake-ups of sockets that this turn has not read to the end. Their descriptors would
 * stay readable and keep the loop busy: libzmq clears one only when the socket is used. */
void app_stream_clear_wakeups(struct app_stream *stream);
/** Close all open sockets. */
void app_stream_close(struct app_stream *stream);

#endif
