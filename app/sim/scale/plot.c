/* SPDX-License-Identifier: BSD-3-Clause */
/* The plot of kvroute-sim --scale: SVG, one row of charts per workload. */
#include "study.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>

#define CHARTS	4
#define WIDE	260 /* of a chart with its margins */
#define HIGH	220
#define LEFT	52
#define TOP	40
#define INNER_W (WIDE - LEFT - 14)
#define INNER_H (HIGH - TOP - 40)

static const struct {
	const char *name;
	size_t offset;
	double unit;
} charts[CHARTS] = {{"hit share, %", offsetof(struct scale_result, hits), 100},
		    {"busiest rank / mean", offsetof(struct scale_result, balance), 1},
		    {"queue, mean ms", offsetof(struct scale_result, queue_s), 1000},
		    {"a decision, us", offsetof(struct scale_result, decision_us), 1}};
static const char *const colours[SCALE_POLICIES] = {"#1b6ca8", "#c8553d", "#6a994e"};
static const char *const names[SCALE_POLICIES] = {"kv", "round robin", "least loaded"};

static double chart_value(const struct scale_study *s, uint32_t point, uint32_t policy, int chart)
{
	const char *r = (const char *)&s->at[point][policy];

	return *(const double *)(const void *)(r + charts[chart].offset) * charts[chart].unit;
}

static double largest_value(const struct scale_study *s, int chart)
{
	double m = 1e-9;

	for (uint32_t i = 0; i < s->n; i++)
		for (uint32_t k = 0; k < SCALE_POLICIES; k++)
			m = fmax(m, chart_value(s, i, k, chart));
	return m;
}

/* Logarithmic: powers of two have equal distances. */
static double x_of_point(const struct scale_study *s, uint32_t point)
{
	const double first = log2(s->ranks[0]), last = log2(s->ranks[s->n - 1]);

	return last > first ? (log2(s->ranks[point]) - first) / (last - first) * INNER_W
			    : INNER_W / 2.0;
}

static void draw_chart(FILE *f, const struct scale_study *s, int c, int x, int y)
{
	const double m = largest_value(s, c);

	fprintf(f,
		"<g transform=\"translate(%d,%d)\"><rect width=\"%d\" height=\"%d\" fill=\"none\" "
		"stroke=\"#999\"/><text y=\"-6\">%s: %s</text>\n",
		x + LEFT, y + TOP, INNER_W, INNER_H, s->name, charts[c].name);
	fprintf(f,
		"<text x=\"-4\" y=\"4\" text-anchor=\"end\">%.3g</text><text x=\"-4\" y=\"%d\" "
		"text-anchor=\"end\">0</text>\n",
		m, INNER_H);
	for (uint32_t i = 0; i < s->n; i++)
		fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%u</text>\n",
			x_of_point(s, i), INNER_H + 14, s->ranks[i]);
	for (uint32_t k = 0; k < SCALE_POLICIES; k++) {
		fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"",
			colours[k]);
		for (uint32_t i = 0; i < s->n; i++)
			fprintf(f, "%.1f,%.1f ", x_of_point(s, i),
				INNER_H - chart_value(s, i, k, c) / m * INNER_H);
		fprintf(f, "\"/>\n");
	}
	fprintf(f, "</g>\n");
}

int scale_plot(const char *path, const struct scale_study *s, uint32_t n)
{
	FILE *f = fopen(path, "w");

	if (f == NULL)
		return -errno;
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" "
		"font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"100%%\" "
		"height=\"100%%\" fill=\"white\"/>\n",
		CHARTS * WIDE, n * HIGH + 24);
	for (uint32_t k = 0; k < SCALE_POLICIES; k++)
		fprintf(f,
			"<text x=\"%u\" y=\"14\" fill=\"%s\">%s, against the number of "
			"ranks</text>\n",
			LEFT + k * WIDE, colours[k], names[k]);
	for (uint32_t i = 0; i < n; i++)
		for (int c = 0; c < CHARTS; c++)
			draw_chart(f, &s[i], c, c * WIDE, (int)(i * HIGH) + 14);
	fprintf(f, "</svg>\n");
	return fclose(f) == 0 ? 0 : -errno;
}
