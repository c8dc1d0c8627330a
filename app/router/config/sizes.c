/* SPDX-License-Identifier: BSD-3-Clause */
/* Derivation of the numbers of packet buffers: sizes.h has the model. */
#include "config/sizes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "kvr_frame.h"

#define RESERVE_LEAST 256u
#define RESERVE_MOST  4096u
#define RING_LEAST    64u
#define RING_MOST     8192u /* unless configured */
#define MESSAGE_LEAST 16u   /* in frames; smaller messages are useless for prompts */
/* Derived buffers take 1/8 of memory_mb, configured ones at most 1/2. */
#define MEMORY_PART 8u
#define MEMORY_MOST 2u

static uint32_t min_u32(uint64_t a, uint64_t b)
{
	return (uint32_t)(a < b ? a : b);
}

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

static uint64_t buffer_bytes(const struct sizes_in *in, uint32_t part)
{
	return ((uint64_t)in->memory_mb << 20) / part;
}

/* Buffers besides those of devices: as the configured pools allow, or a part of the memory. */
static uint32_t room_of(const struct sizes_in *in, bool *given)
{
	uint64_t per_frame = 0, devices = 0, budget = buffer_bytes(in, MEMORY_PART);
	uint32_t room = UINT32_MAX;

	*given = false;
	for (uint32_t i = 0; i < in->n_ports; i++) {
		per_frame += in->buffer[i];
		devices += (uint64_t)in->device[i] * in->buffer[i];
		if (in->mbufs[i] == 0)
			continue;
		*given = true;
		room = min_u32(room,
			       in->mbufs[i] > in->device[i] ? in->mbufs[i] - in->device[i] : 0);
	}
	if (*given)
		return room;
	/* Devices get what they need; small memories leave little besides. */
	budget = budget > 2 * devices ? budget - devices : budget / 2;
	return min_u32(budget / per_frame, UINT32_MAX / 2);
}

/* Divide the room. Configured values are used unchanged, so the sum may be too large. */
static uint64_t divide_room(const struct sizes_in *in, uint32_t room, uint64_t extra,
			    struct sizes *s)
{
	uint64_t left = room, rings;

	s->reserve = room / 16;
	if (s->reserve < RESERVE_LEAST)
		s->reserve = RESERVE_LEAST;
	if (s->reserve > RESERVE_MOST)
		s->reserve = RESERVE_MOST;
	s->low_water = s->reserve;
	left -= min_u32(left, s->reserve);
	s->ring_size = power_of_two(in->ring_size);
	if (in->ring_size == 0)
		for (s->ring_size = RING_MOST; s->ring_size > RING_LEAST; s->ring_size /= 2)
			if ((uint64_t)in->rings * s->ring_size <= left / 2)
				break;
	rings = (uint64_t)in->rings * s->ring_size + extra;
	left -= min_u32(left, rings);
	s->reassembly = in->reassembly_frames;
	s->waiting = in->waiting_frames;
	if (s->reassembly == 0)
		s->reassembly = (uint32_t)(s->waiting == 0     ? left / 2
					   : left > s->waiting ? left - s->waiting
							       : 0);
	if (s->waiting == 0)
		s->waiting = (uint32_t)(left > s->reassembly ? left - s->reassembly : 0);
	return s->reserve + rings + s->reassembly + s->waiting;
}

static int too_many(const struct sizes_in *in, const struct sizes *s, uint32_t port, uint64_t sum,
		    char *err, size_t errlen)
{
	snprintf(
		err, errlen,
		"[port %s] mbufs = %u is too few: device and lcores hold %u, %u rings of [router] ring_size %u, reassembly_frames %u, waiting_frames %u, reserve %u: needed %" PRIu64,
		in->port[port], in->mbufs[port], in->device[port], in->rings, s->ring_size,
		s->reassembly, s->waiting, s->reserve, in->device[port] + sum);
	return -EINVAL;
}

/* Check that the pools of all ports hold the sum, and that memory holds the pools. */
static int check_room(const struct sizes_in *in, struct sizes *s, uint64_t sum, char *err,
		      size_t errlen)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < in->n_ports; i++) {
		const uint64_t need = in->device[i] + sum;

		if (in->mbufs[i] != 0 && in->mbufs[i] < need)
			return too_many(in, s, i, sum, err, errlen);
		total += (in->mbufs[i] != 0 ? in->mbufs[i] : need) * in->buffer[i];
		s->mbufs[i] = in->mbufs[i] != 0 ? in->mbufs[i] : min_u32(need, UINT32_MAX);
	}
	if (total <= buffer_bytes(in, MEMORY_MOST))
		return 0;
	snprintf(
		err, errlen,
		"[router] memory_mb = %u is too low: packet buffers take %" PRIu64
		" MiB and may take half: %u rings of ring_size %u, reassembly_frames %u, waiting_frames %u, devices %u",
		in->memory_mb, total >> 20, in->rings, s->ring_size, s->reassembly, s->waiting,
		in->device[0]);
	return -EINVAL;
}

/* The largest message, from the frames that one source and one pool may hold. */
static int derive_message(const struct sizes_in *in, struct sizes *s, char *err, size_t errlen)
{
	const uint32_t unit = (in->max_frame - KVR_WIRE_MIN_FRAME) & ~7u;

	s->reassembly_lcore = s->reassembly / in->n_ingress;
	s->waiting_pool = s->waiting / in->n_pools;
	s->reassembly_source = in->reassembly_source_frames != 0 ? in->reassembly_source_frames
								 : s->reassembly_lcore / 2;
	if (s->reassembly_source > s->reassembly_lcore) {
		snprintf(
			err, errlen,
			"[router] reassembly_source_frames = %u is above the part of one ingress lcore: reassembly_frames %u of %u lcores",
			s->reassembly_source, s->reassembly, in->n_ingress);
		return -EINVAL;
	}
	s->max_frames = min_u32(s->reassembly_source / 2, s->waiting_pool / 2);
	s->max_frames = min_u32(s->max_frames, KVR_WIRE_MAX_FRAGMENTS);
	if (s->max_frames < MESSAGE_LEAST) {
		snprintf(
			err, errlen,
			"buffers too small for messages: a source may hold %u fragments (reassembly_frames %u, %u ingress lcores), a pool %u (waiting_frames %u, %u pools); raise [router] memory_mb = %u, or [port] mbufs, or lower ring_size %u",
			s->reassembly_source, s->reassembly, in->n_ingress, s->waiting_pool,
			s->waiting, in->n_pools, in->memory_mb, s->ring_size);
		return -EINVAL;
	}
	s->max_message = min_u32((uint64_t)s->max_frames * unit, KVR_WIRE_MAX_MESSAGE);
	return 0;
}

/* Derive with `extra` ring entries beyond ring_size. */
static int derive_with_rings(const struct sizes_in *in, uint64_t extra, struct sizes *s, char *err,
			     size_t errlen)
{
	bool given;
	uint64_t sum;
	int rc;

	*s = (struct sizes){0};
	s->room = room_of(in, &given);
	sum = divide_room(in, s->room, extra, s);
	rc = check_room(in, s, sum, err, errlen);
	if (rc < 0)
		return rc;
	s->room = min_u32(sum, UINT32_MAX);
	s->egress_size = s->joins_size = s->ring_size;
	return derive_message(in, s, err, errlen);
}

int sizes_derive(const struct sizes_in *in, struct sizes *out, char *err, size_t errlen)
{
	/* Rings that may hold a complete message. */
	const uint32_t egress = in->apart != 0 ? in->n_ingress : 0, n = egress + in->joins;
	int rc = derive_with_rings(in, 0, out, err, errlen);
	uint32_t size;

	/* Longer rings leave less for messages, so the result does not grow. */
	if (rc < 0 || n == 0 || out->max_frames < out->ring_size)
		return rc;
	size = power_of_two(out->max_frames + 1);
	rc = derive_with_rings(in, (uint64_t)n * (size - out->ring_size), out, err, errlen);
	if (egress != 0)
		out->egress_size = size;
	if (in->joins != 0)
		out->joins_size = size;
	return rc;
}
