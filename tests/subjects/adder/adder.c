/* adder: what three small blocks do to rows of floats. x and out are [rows][width], totals is [width].
   Every result has one written order of operations, so that rows in one call give the bytes of rows one by one. */

#define ROWS_MAX 8

enum { ACCEPTED, ROWS, WIDTH, LIMIT };

/* The reason of a refusal, known before the first byte of state changes. */
static int refused(int rows, int width) {
    if (rows < 1 || rows > ROWS_MAX) return ROWS;
    if (width < 1) return WIDTH;
    return ACCEPTED;
}

/* Block sum: totals += x[r], row after row; out[r] is totals after row r. */
int sum(float *totals, const float *x, float *out, int rows, int width) {
    int reason = refused(rows, width);
    if (reason != ACCEPTED) return reason;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < width; i++) {
            totals[i] = totals[i] + x[r * width + i];
            out[r * width + i] = totals[i];
        }
    return ACCEPTED;
}

/* Block scale: out = x * factor. */
int scale(const float *x, float *out, int rows, int width, float factor) {
    int reason = refused(rows, width);
    if (reason != ACCEPTED) return reason;
    for (int n = 0; n < rows * width; n++) out[n] = x[n] * factor;
    return ACCEPTED;
}

/* Block clip: out = x, but no further from zero than limit. A limit that is negative or NaN is refused. */
int clip(const float *x, float *out, int rows, int width, float limit) {
    int reason = refused(rows, width);
    if (reason == ACCEPTED && !(limit >= 0.0f)) reason = LIMIT;
    if (reason != ACCEPTED) return reason;
    for (int n = 0; n < rows * width; n++) out[n] = x[n] > limit ? limit : x[n] < -limit ? -limit : x[n];
    return ACCEPTED;
}
