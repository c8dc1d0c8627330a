/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leftist heaps linked through slots (Crane 1972): the shorter way to a missing child is always
 * on the right, so merging walks O(log n) nodes, and so does taking out any node.
 */
#include "sched_pvt.h"

/* Section 7.2: strict priority, then key, then who came first. */
bool kvr_sched__before(const struct node *a, const struct node *b)
{
	if (a->strict != b->strict)
		return a->strict > b->strict;
	if (a->key != b->key)
		return a->key > b->key;
	return a->seq < b->seq;
}

static uint32_t dist(const struct node *n, uint32_t i)
{
	return i == NIL ? 0 : n[i].dist;
}

/* Restore shape at i; true when its distance changed. */
static bool settle(struct node *n, uint32_t i)
{
	uint32_t d;

	if (dist(n, n[i].left) < dist(n, n[i].right)) {
		uint32_t t = n[i].left;

		n[i].left = n[i].right;
		n[i].right = t;
	}
	d = dist(n, n[i].right) + 1;
	if (d == n[i].dist)
		return false;
	n[i].dist = d;
	return true;
}

/* Merge two heaps without recursion: down the right spines, then up settling. */
static uint32_t merge(struct node *n, uint32_t a, uint32_t b)
{
	uint32_t root, last = NIL;

	if (a == NIL || b == NIL)
		return a == NIL ? b : a;
	root = kvr_sched__before(&n[a], &n[b]) ? a : b;
	while (a != NIL && b != NIL) {
		if (kvr_sched__before(&n[b], &n[a])) {
			uint32_t t = a;

			a = b;
			b = t;
		}
		if (last != NIL) {
			n[last].right = a;
			n[a].up = last;
		}
		last = a;
		a = n[a].right;
	}
	if (a == NIL)
		a = b;
	n[last].right = a;
	if (a != NIL)
		n[a].up = last;
	for (;;) {
		settle(n, last);
		if (last == root)
			return root;
		last = n[last].up;
	}
}

void kvr_sched__heap_add(struct node *n, uint32_t *root, uint32_t i)
{
	n[i].left = NIL;
	n[i].right = NIL;
	n[i].dist = 1;
	*root = merge(n, *root, i);
	n[*root].up = NIL;
}

void kvr_sched__heap_del(struct node *n, uint32_t *root, uint32_t i)
{
	uint32_t up = n[i].up, left = n[i].left, right = n[i].right, sub;

	if (left != NIL)
		n[left].up = NIL;
	if (right != NIL)
		n[right].up = NIL;
	sub = merge(n, left, right);
	if (sub != NIL)
		n[sub].up = up;
	if (up == NIL) {
		*root = sub;
		return;
	}
	if (n[up].left == i)
		n[up].left = sub;
	else
		n[up].right = sub;
	while (up != NIL && settle(n, up))
		up = n[up].up;
}
