/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ENDS_WORLD_H
#define ENDS_WORLD_H

/**
 * @file
 *
 * The world of fuzz_client and fuzz_agent: an input that is a program, waiting datagrams, the
 * frames sent by the end under test, and a clock. One thread; world_begin() clears everything.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_frame.h"
#include "kvr_udp.h"

#define WORLD_FRAME 9216u

/** Addresses: the sender of a frame. */
enum world_who { WORLD_ROUTER, WORLD_PEER, WORLD_STRANGER, WORLD_ALL };

void world_begin(const uint8_t *data, size_t len);
bool world_has_input(void);
uint8_t world_take_byte(void);
uint16_t world_take_word(void);

/** A number from 0 to @p most: mostly small, sometimes large. */
uint32_t world_take_size(uint32_t most);

struct kvr_udp_addr world_make_addr(enum world_who who);

/** Chosen by the input: mostly the router. */
struct kvr_udp_addr world_take_source(void);

/** The I/O functions of the end under test. */
struct kvr_udp world_udp(void);

uint64_t world_now(void);
void world_pass_time(uint64_t us);

/** Queue a frame to be received; the input may have one of its bytes replaced. Does nothing if @p
 * len is 0 or negative. */
void world_push(struct kvr_udp_addr from, const void *frame, int len);

/** Queue the fragments of a message: some left out, repeated, reordered, or cut in another way. */
void world_push_message(struct kvr_udp_addr from, uint8_t kind, const struct kvr_wire_ids *ids,
			const void *body, uint32_t len);

/** Header of a frame of @p kind that the end has sent, @p back frames of this kind ago; NULL: none.
 */
const struct kvr_wire_hdr *world_sent(uint8_t kind, uint32_t back);

/** Queue a MISSING about the message that frame @p h belongs to, correct or not by the input. */
void world_push_missing(struct kvr_udp_addr from, const struct kvr_wire_hdr *h);

/** Number of frames that the end has sent so far. */
uint64_t world_count_sent(void);

#endif
