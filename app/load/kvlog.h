/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_KVLOG_H
#define LOAD_KVLOG_H

/**
 * @file
 * What an engine has to say of its blocks: events not yet acknowledged, in a ring for each rank,
 * and one dump at a time. Load lcore: rw; a frame's worth is copied whenever it is sent.
 */

#include <stdbool.h>
#include <stdint.h>

/** Events of one rank not yet acknowledged, as wire bytes in a ring. Load lcore: rw. */
struct load_kvlog {
	uint64_t *words;
	uint32_t size; /* words, a power of two */
	uint64_t head; /* word positions, ever rising */
	uint64_t acked_at, sent_at;
	uint64_t next_id; /* of the next event made */
	uint64_t acked_id, sent_id;
	uint64_t last_tx;
	bool listed; /* in the list of logs with work */
	bool dump_wanted;
};

/** A dump being sent: one at a time. */
struct load_dump {
	uint8_t *bytes;	   /* frame bodies one after another */
	uint32_t *at;	   /* offset of each frame, and the end */
	uint64_t *scratch; /* a cache's worth of hashes */
	uint32_t room, frames_room;
	uint32_t n_frames, sent, acked;
	uint32_t rank; /* LOAD_UNPINNED: none */
	uint64_t id;   /* in the header of its frames, and of no others: above 2^63, and rising */
	uint64_t resume_id;
	uint64_t last_tx;
	uint64_t moved; /* when it last went on, or back */
};

#endif
