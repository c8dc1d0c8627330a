/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ENDS_WORLD_H
#define ENDS_WORLD_H

/**
 * @file
 * The world of fuzz_client and fuzz_agent: an input that is a program, datagrams that wait, what
 * the end under test has said, and a clock. One thread; world_begin() forgets what was.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_frame.h"
#include "kvr_udp.h"

#define WORLD_FRAME 9216u

/** Addresses: whom a frame comes from. */
enum world_who { WORLD_ROUTER, WORLD_PEER, WORLD_STRANGER, WORLD_ALL };

void world_begin(const uint8_t *data, size_t len);
bool world_more(void);
uint8_t world_byte(void);
uint16_t world_word(void);

/** One of 0 to @p most: mostly small, at times large. */
uint32_t world_size(uint32_t most);

struct kvr_udp_addr world_addr(enum world_who who);

/** Mostly the router, by the input. */
struct kvr_udp_addr world_from(void);

/** The outside world of the end under test. */
struct kvr_udp world_udp(void);

uint64_t world_now(void);
void world_pass(uint64_t us);

/** A frame waits to be received; with the input's will one byte of it is another one. @p len not
 * above 0: nothing. */
void world_push(struct kvr_udp_addr from, const void *frame, int len);

/** Fragments of a message: some left out, twice, in another order, cut in another way. */
void world_push_message(struct kvr_udp_addr from, uint8_t kind, const struct kvr_wire_ids *ids,
			const void *body, uint32_t len);

/** Header of a frame that the end has said, @p back of @p kind ago; NULL: never. */
const struct kvr_wire_hdr *world_said(uint8_t kind, uint32_t back);

/** MISSING about the message of which @p h was a frame, as far as the input says it right. */
void world_push_missing(struct kvr_udp_addr from, const struct kvr_wire_hdr *h);

/** Frames that the end has said so far. */
uint64_t world_frames(void);

#endif
