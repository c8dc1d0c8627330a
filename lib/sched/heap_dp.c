/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leftist heaps linked through slots (Crane 1972): the shorter way to a missing child is always
 * on the right, so merging walks O(log n) nodes, and so does taking out any node. A node keeps
 * the distances of its children, so that a walk touches the nodes on its way and no others.
 */
#include "sched_pvt.h"

static const struct tree empty = {.root = NIL};

/* Section 7.2: strict priority, then key, then who came first. Only the keys are hard to guess. */
static inline bool before(const struct node *a, const struct node *b)
{
	if (__builtin_expect(a->strict != b->strict, 0))
		return a->strict > b->strict;
	if (__builtin_expect(a->key == b->key, 0))
		return a->seq < b->seq;
	return a->key > b->key;
}

bool kvr_sched__before(const struct node *a, const struct node *b)
{
	return before(a, b);
}

/* Longer side to the left; the tree it makes. */
static struct tree settle(struct node *n, uint32_t i)
{
	struct node *x = &n[i];
	const struct tree l = x->left, r = x->right;
	const bool turn = l.dist < r.dist;

	x->left = turn ? r : l;
	x->right = turn ? l : r;
	return (struct tree){i, x->right.dist + 1};
}

static void hang(struct node *n, struct tree t, uint32_t up)
{
	if (t.root != NIL)
		n[t.root].up = up;
}

/* Merge two heaps without recursion: down the right spines, then up settling. */
static struct tree merge(struct node *n, struct tree a, struct tree b)
{
	uint32_t last = NIL;

	while (a.root != NIL && b.root != NIL) {
		const bool turn = before(&n[b.root], &n[a.root]);
		const struct tree top = turn ? b : a;

		b = turn ? a : b;
		n[top.root].up = last;
		if (last != NIL)
			n[last].right.root = top.root;
		last = top.root;
		a = n[last].right;
	}
	a = a.root == NIL ? b : a;
	hang(n, a, last);
	while (last != NIL) {
		n[last].right = a;
		a = settle(n, last);
		last = n[last].up;
	}
	return a;
}

/* `sub` takes the place of `child` below `up`; as far up as that changes a distance. */
static void replace(struct node *n, uint32_t up, uint32_t child, struct tree sub)
{
	while (up != NIL) {
		const uint32_t was = n[up].right.dist;

		if (n[up].right.root == child)
			n[up].right = sub;
		else
			n[up].left = sub;
		sub = settle(n, up);
		if (n[up].right.dist == was)
			return;
		child = up;
		up = n[up].up;
	}
}

/* Down the right spine to the first that has to come later; it goes below the new one. */
void kvr_sched__heap_add(struct node *n, uint32_t *root, uint32_t i)
{
	struct tree below = {*root, *root == NIL ? 0 : n[*root].right.dist + 1};
	uint32_t up = NIL;

	while (below.root != NIL && !before(&n[i], &n[below.root])) {
		up = below.root;
		below = n[up].right;
	}
	n[i].up = up;
	n[i].left = below;
	n[i].right = empty;
	hang(n, below, i);
	if (up == NIL)
		*root = i;
	else
		replace(n, up, below.root, (struct tree){i, 1});
}

void kvr_sched__heap_del(struct node *n, uint32_t *root, uint32_t i)
{
	struct tree sub = merge(n, n[i].left, n[i].right);

	hang(n, sub, n[i].up);
	if (n[i].up == NIL)
		*root = sub.root;
	else
		replace(n, n[i].up, i, sub);
}
