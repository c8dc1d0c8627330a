/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_OPAQUE_H
#define LOAD_OPAQUE_H

/**
 * @file
 * Opaque bytes that must pass through the router unchanged: the transfer result of a prefill
 * engine, and the names of sessions. No state.
 */

#include <stdbool.h>
#include <stdint.h>

#define LOAD_SESSION_NAME 40u

/** The result of a prefill leg, which the decode engine verifies. */
struct load_transfer {
	uint64_t source; /* the client's request */
	uint64_t id;
	uint64_t worker; /* worker that has the blocks */
	uint64_t room;	 /* bootstrap room, or 0 */
	uint64_t last;	 /* sequence hash of the prompt's last block, or 0 */
	uint32_t dp_rank;
	uint32_t n_blocks;
	uint64_t sum; /* load_transfer_sum() */
};

/** Checksum over all earlier fields. */
uint64_t load_transfer_sum(const struct load_transfer *t);

/** Set the checksum. */
static inline void load_transfer_seal(struct load_transfer *t)
{
	t->sum = load_transfer_sum(t);
}

/** Whether these @p len bytes are equal to @p want. */
bool load_transfer_is(const void *bytes, uint32_t len, const struct load_transfer *want);

/** Whether a bootstrap room names the rank: room mod @p dp_size is the rank's number. */
static inline bool load_room_fits(uint64_t room, uint32_t dp_rank, uint32_t dp_size)
{
	return room >> 63 == 0 && room % dp_size == dp_rank;
}

/** Name of session @p number of process @p tag. */
void load_session_name(char out[LOAD_SESSION_NAME], uint64_t tag, uint64_t number);

/** Number of the session with that name, or 0 when it is of another process. */
uint64_t load_session_number(const char *name, uint32_t len, uint64_t tag);

#endif
