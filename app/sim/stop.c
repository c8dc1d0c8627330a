/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Orderly shutdown of a router: control runs the code for SIGTERM, which sleeps between its steps.
 * It therefore runs on a stack of its own, and the world continues whenever it sleeps.
 */
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <ucontext.h>

#include "control/control.h"

#define STACK (512u << 10)

struct stop {
	ucontext_t world, control;
	struct router *rt;
	uint32_t back_ms;
	bool over;
	uint8_t stack[STACK];
};

static struct stop *running; /* owner of the current stack */

static void pause_here(struct router *rt, uint64_t ns)
{
	struct stop *me = running;

	RTE_SET_USED(rt);
	RTE_SET_USED(ns);
	swapcontext(&me->control, &me->world);
	running = me;
}

static void end_in_order(void)
{
	struct stop *me = running;

	stop_in_order(me->rt);
	me->over = true;
}

int stop_begin(struct host *h, uint32_t back_ms)
{
	struct stop *t = malloc(sizeof(*t));

	if (t == NULL || getcontext(&t->control) < 0) {
		free(t);
		return -ENOMEM;
	}
	t->rt = h->rig.rt;
	t->back_ms = back_ms;
	t->over = false;
	t->control.uc_stack = (stack_t){.ss_sp = t->stack, .ss_size = STACK};
	t->control.uc_link = &t->world;
	makecontext(&t->control, end_in_order, 0);
	t->rt->pause = pause_here;
	atomic_store_explicit(&t->rt->quit, 1, memory_order_relaxed);
	h->stop = t;
	return 0;
}

bool stop_run(struct host *h)
{
	running = h->stop;
	swapcontext(&h->stop->world, &h->stop->control);
	return h->stop->over;
}

uint32_t stop_back_ms(const struct host *h)
{
	return h->stop->back_ms;
}

void stop_free(struct host *h)
{
	free(h->stop);
	h->stop = NULL;
}
