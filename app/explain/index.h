/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_INDEX_H
#define EX_INDEX_H

/**
 * @file
 * The prefix table of one pool as the scenarios see it: lib/prefix, run by one thread that is
 * both its writer and its reader.
 */

#include "kvr_prefix.h"
#include "kvr_sched.h"
#include <stdbool.h>
#include <stdint.h>

struct ex_index;

/** Start the EAL the table needs, quietly. Once per process. */
bool ex_index_start(void);

struct ex_index *ex_index_create(uint32_t max_ranks);

/** Blocks that a rank stores (after @p parent, or NULL) or removes. */
void ex_index_event(struct ex_index *x, uint32_t rank, enum kvr_prefix_op op, enum kvr_tier tier,
		    const uint64_t *parent, const uint64_t *sh, uint32_t n);

/** The rank has nothing any more, predictions neither. */
void ex_index_clear(struct ex_index *x, uint32_t rank);

void ex_index_predict(struct ex_index *x, uint32_t rank, const uint64_t *sh, uint32_t n,
		      uint64_t now_ns, double ttl_s);

/** Overlap of a prompt at a time; the arrays stay valid until the next call. */
void ex_index_score(struct ex_index *x, const uint64_t *sh, uint32_t n, uint64_t now_ns,
		    struct kvr_sched_overlap *ov);

#endif
