"""The one experiment on images: rows × data sets × paired seeds × tests. The paper's Table II is a
list of rows.
"""
