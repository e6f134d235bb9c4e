"""What papers print, and what runs say of it: claims, figures, study. No package of the core needs it."""
