package render

// MaxPiece is the most text of one delta.
const MaxPiece = maxPiece
