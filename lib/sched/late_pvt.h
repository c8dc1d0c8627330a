/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LATE_PVT_H
#define LATE_PVT_H

/**
 * @file
 * Late binding of mode ttft: interface of late_dp.c to the queue and the choices. Scheduler lcore.
 */

#include "sched_pvt.h"

bool kvr_sched__late_full(const struct kvr_sched *s, uint32_t rank, uint64_t now);
bool kvr_sched__late_waits(const struct kvr_sched *s, const struct choice *c, uint32_t rank,
			   uint64_t now);
double kvr_sched__late_key(const struct kvr_sched *s, const struct waiting *w, double jump);
void kvr_sched__late_see(const struct kvr_sched *s, struct cost_in *in);
void kvr_sched__late_hold(struct kvr_sched *s, uint32_t slot, const struct choice *c,
			  const struct kvr_sched_decision *d);
void kvr_sched__late_drop(struct kvr_sched *s, uint32_t slot);
void kvr_sched__late_again(struct kvr_sched *s, uint32_t slot, const struct choice *c);
uint32_t kvr_sched__late_rank(const struct kvr_sched *s, uint32_t slot);
void kvr_sched__late_add(struct kvr_sched *s, uint32_t slot, uint64_t now);
void kvr_sched__late_del(struct kvr_sched *s, uint32_t slot);
uint64_t kvr_sched__late_until(const struct kvr_sched *s);
uint32_t kvr_sched__late_due(const struct kvr_sched *s, uint64_t now);

#endif
