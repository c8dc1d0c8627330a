/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_KVLOG_H
#define LOAD_KVLOG_H

/**
 * @file
 * KV events of an engine that are not yet acknowledged, in a ring per rank, and one dump at a time.
 * Writer: load lcore. Each transmission copies the content of a frame.
 */

#include <stdbool.h>
#include <stdint.h>

/** Unacknowledged events of one rank, as wire bytes in a ring. Load lcore: rw. */
struct load_kvlog {
	uint64_t *words;
	uint32_t size; /* words, a power of two */
	uint64_t head; /* word positions, only growing */
	uint64_t acked_at, sent_at;
	uint64_t next_id; /* of the next event */
	uint64_t acked_id, sent_id;
	uint64_t last_tx;
	bool listed; /* in the list of logs with work */
	bool dump_wanted;
};

/** The dump in progress; one at a time. */
struct load_dump {
	uint8_t *bytes;	   /* bodies of all frames */
	uint32_t *at;	   /* offset of each frame, and the end */
	uint64_t *scratch; /* room for all hashes of a cache */
	uint32_t room, frames_room;
	uint32_t n_frames, sent, acked;
	uint32_t rank; /* LOAD_UNPINNED: none */
	uint64_t id;   /* in the header of its frames only: above 2^63, growing */
	uint64_t resume_id;
	uint64_t last_tx;
	uint64_t moved; /* last progress or step back */
};

#endif
