/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_STREAM_H
#define AGENT_STREAM_H

/**
 * @file
 * The KV events of one rank: a SUB socket, and a DEALER to the replay socket. Batches are numbered
 * without gaps. A gap is repaired by a replay; what a replay does not have any more, or a number
 * that goes back (the engine is another one), makes the rank start clean.
 */

#include "app.h"
#include "kvr_kvmap.h"

struct app_stream {
	struct app *app;
	uint32_t dp_rank;
	void *sub, *dealer, *monitor;
	struct kvr_kvev_decoder *decoder;
	struct kvr_kvmap *map;
	uint64_t next;	/* number of the batch that comes next */
	bool fresh;	/* no batch was seen: any number may be the first */
	bool replaying; /* live batches wait in the SUB socket */
	bool begun;	/* the replay has brought something */
	bool audit;	/* the replay was asked for without a gap */
	uint64_t floor; /* live batches from here to next are known from the last replay */
	uint64_t seen;	/* the live batch that showed the gap; UINT64_MAX: none */
	uint64_t replay_us, audit_us; /* when it is given up; when the next audit is */
	uint64_t dump_pos;
	bool size_told;
	uint32_t bad_batches; /* of this life, as the table's counters are */
};

/** stream_zmq.c: connect the sockets, and have the loop woken by them. @return 0 or -errno */
int app_stream_open(struct app_stream *s);
/** The DEALER again, when it was closed to drop what it holds; NULL when it cannot be had. */
void app_stream_open_dealer(struct app_stream *s);
/** Close those that there are. */
void app_stream_close(struct app_stream *s);

#endif
